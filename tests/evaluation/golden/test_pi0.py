"""pi0's cases: other sizes, made with transformers, and values that must not pass."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import PI0Config, PI0ForConditionalGeneration
from vla_worlds import published

from mstar_plan.evaluation.golden.check import check_folder
from mstar_plan.evaluation.golden.pi0 import split_prompt
from mstar_plan.models.vla.pi_checkpoint import load_pi
from mstar_plan.models.vla.pi_config import read_pi_config

CASE = Path(__file__).parents[2] / "golden" / "pi0"
IMAGE = 60
GEMMA = {
    "model_type": "gemma", "num_hidden_layers": 3, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 6,
    "vocab_size": 61,
}  # fmt: skip
SIZES = {
    "vlm_config": {
        "model_type": "paligemma", "image_token_index": IMAGE, "projection_dim": 20, "hidden_size": 20,
        "text_config": {**GEMMA, "hidden_size": 20, "intermediate_size": 28},
        "vision_config": {
            "model_type": "siglip_vision_model", "hidden_size": 12, "intermediate_size": 16, "num_hidden_layers": 1,
            "num_attention_heads": 3, "image_size": 14, "patch_size": 7, "vision_use_head": False, "projection_dim": 20,
        },
    },
    "dit_config": {**GEMMA, "hidden_size": 14, "intermediate_size": 18},
    "chunk_size": 4, "max_state_dim": 3, "max_action_dim": 5, "num_inference_steps": 2, "min_period": 0.01,
    "max_period": 2.0,
}  # fmt: skip


@torch.inference_mode()
def other_case(folder: Path) -> Path:
    """Three cameras, of which the first or the last may be missing, and more padding than any row needs."""
    torch.manual_seed(1)
    theirs = PI0ForConditionalGeneration(PI0Config(**SIZES)).eval()
    for name, parameter in theirs.named_parameters():
        torch.nn.init.normal_(parameter, std=0.1 if "norm" in name else 0.2)
    policy = load_pi(read_pi_config("pi0", SIZES), {name: each.clone() for name, each in theirs.state_dict().items()})
    there = torch.tensor([[True, True, True], [False, True, True], [True, False, False]])
    ids, attention = torch.full((3, 20), 7), torch.zeros(3, 20, dtype=torch.int64)
    for row, length in enumerate((5, 3, 4)):
        images = 4 * int(there[row].sum())
        ids[row, :images] = IMAGE
        ids[row, images : images + length] = torch.randint(1, IMAGE, (length,))
        attention[row, : images + length] = 1
    pixels, state = torch.rand(3, 3, 3, 14, 14) * 2 - 1, torch.randn(3, 3)
    noise = torch.randn(3, 4, 5)
    io = {"in.input_ids": ids, "in.attention_mask": attention, "in.pixel_values": pixels, "in.state": state}
    io |= {"in.pixel_attention_mask": there, "in.noise": noise}
    for steps, name in ((2, "out.actions"), (7, "out.actions_steps7")):
        io[name] = theirs.sample_actions(
            state, ids, pixels, noise, attention_mask=attention, pixel_attention_mask=there, num_steps=steps
        )
    io["mid.prefix_embeds"] = theirs.model.embed_prefix(ids, pixels, there)
    io["mid.action_embeds_step0"] = theirs.embed_action_time(state, noise, torch.ones(3))
    folder.mkdir()
    (folder / "case.json").write_text(json.dumps({"case": "pi0_wide", "config": SIZES}))
    save_file(published(policy), folder / "weights.safetensors")
    save_file({name: each.contiguous() for name, each in io.items()}, folder / "io.safetensors")
    return folder


def test_a_case_of_other_sizes(tmp_path: Path) -> None:
    result = check_folder(other_case(tmp_path / "case"))
    assert result.ok, [each for each in result.comparisons if not each.ok] or result.failure
    assert (result.kind, len(result.comparisons), result.unchecked) == ("pi0", 4, ())


@pytest.mark.parametrize("tensor", ["out.actions", "out.actions_steps5", "mid.velocity_step2", "mid.prefix_embeds"])
def test_a_wrong_value_fails(tmp_path: Path, tensor: str) -> None:
    folder = shutil.copytree(CASE, tmp_path / "pi0")
    io = load_file(folder / "io.safetensors")
    io[tensor] = io[tensor] + 1e-3
    save_file(io, folder / "io.safetensors")
    result = check_folder(folder)
    assert [each.tensor for each in result.comparisons if not each.ok] == [tensor]


def test_the_text_of_a_prompt_is_found_behind_any_images() -> None:
    ids = torch.tensor([[9, 9, 1, 2, 3, 0], [9, 4, 5, 0, 0, 0]])
    present = torch.tensor([[1, 1, 1, 1, 1, 0], [1, 1, 1, 0, 0, 0]]).bool()
    tokens, mask = split_prompt(ids, present, 9)
    assert tokens.tolist() == [[1, 2, 3], [4, 5, 0]]
    assert mask.tolist() == [[True] * 3, [True, True, False]]
