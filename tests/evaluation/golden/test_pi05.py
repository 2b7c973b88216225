"""pi0.5's cases: other sizes against a slow implementation, and values that must not pass."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from naive_pi05 import NaivePi05
from safetensors.torch import load_file, save_file
from vla_worlds import published, tiny_pi

from mstar_plan.evaluation.golden.check import check_folder
from mstar_plan.models.vla.gemma import GemmaConfig
from mstar_plan.models.vla.siglip import SiglipConfig

CASE = Path(__file__).parents[2] / "golden" / "pi05"


@torch.inference_mode()
def other_case(folder: Path) -> Path:
    """Three cameras, other sizes, another time scale, and no real-time chunking."""
    policy = tiny_pi(
        "pi05", 3, vision=SiglipConfig(24, 1, 3, 20, 42, 14), language=GemmaConfig(20, 3, 28, 4, 2, 6),
        expert=GemmaConfig(14, 3, 18, 4, 2, 6), vocabulary=77, chunk=3, action_width=4, steps=2, min_period=0.02,
    )  # fmt: skip
    for name, parameter in policy.named_parameters():
        if "modulation" in name:
            parameter.mul_(0.3)
    tensors = published(policy)
    naive = NaivePi05(policy.config, tensors)
    rows, cameras = 3, 3
    images, noise = torch.rand(rows, cameras, 3, 42, 42) * 2 - 1, torch.randn(rows, 3, 4)
    there = torch.tensor([[True, True, True], [True, False, True], [True, True, False]])
    tokens, mask = torch.randint(0, 77, (rows, 9)), torch.arange(9) < torch.tensor([[9], [4], [7]])
    z, seen = naive.prefix(images, there, tokens, mask)
    io = {"in.tokens": tokens, "in.token_mask": mask, "in.noise": noise}
    io |= {f"in.image{i}": images[:, i].contiguous() for i in range(cameras)}
    io |= {f"in.img_mask{i}": there[:, i].contiguous() for i in range(cameras)}
    io |= {"mid.prefix_embeds": z.float(), "mid.prefix_pad_mask": seen}
    io["mid.velocity_step0"] = naive.velocity(noise.double(), 1.0, z, seen).float()
    io["mid.adarms_cond_step0"] = naive.condition(1.0).float().expand(rows, -1).contiguous()
    io |= {
        "out.actions": naive.act(noise, 2, z, seen).float(),
        "out.actions_steps4": naive.act(noise, 4, z, seen).float(),
    }

    def tower(sizes: GemmaConfig) -> dict:
        names = ("width", "depth", "mlp_dim", "num_heads", "num_kv_heads", "head_dim")
        values = (sizes.width, sizes.depth, sizes.hidden, sizes.heads, sizes.kv_heads, sizes.head_width)
        return dict(zip(names, values, strict=True))

    vision = {"hidden_size": 24, "intermediate_size": 20, "num_hidden_layers": 1, "num_attention_heads": 3}
    config = {
        "paligemma": tower(policy.config.language), "action_expert": tower(policy.config.expert),
        "vision": vision | {"patch_size": 14, "image_size": 42}, "vocab_size": 77, "chunk_size": 3,
        "max_action_dim": 4, "max_state_dim": 6, "num_inference_steps": 2, "min_period": 0.02, "max_period": 4.0,
    }  # fmt: skip
    folder.mkdir()
    (folder / "case.json").write_text(json.dumps({"case": "pi05_wide", "config": config}))
    save_file(tensors, folder / "weights.safetensors")
    save_file(io, folder / "io.safetensors")
    return folder


def test_a_case_of_other_sizes(tmp_path: Path) -> None:
    result = check_folder(other_case(tmp_path / "case"))
    assert result.ok, [each for each in result.comparisons if not each.ok] or result.failure
    assert (result.kind, len(result.comparisons), result.unchecked) == ("pi05", 6, ())


@pytest.mark.parametrize(
    "tensor", ["out.actions", "out.rtc_exp.actions", "out.rtc_zeros.weights", "mid.velocity_step1", "mid.prefix_embeds"]
)
def test_a_wrong_value_fails(tmp_path: Path, tensor: str) -> None:
    folder = shutil.copytree(CASE, tmp_path / "pi05")
    io = load_file(folder / "io.safetensors")
    io[tensor] = io[tensor] + 1e-3
    save_file(io, folder / "io.safetensors")
    result = check_folder(folder)
    assert [each.tensor for each in result.comparisons if not each.ok] == [tensor]


@pytest.mark.parametrize("changes", [{"inference_delay": 2}, {"execution_horizon": 2}, {"max_guidance_weight": 1.5}])
def test_chunking_follows_the_cases_settings(tmp_path: Path, changes: dict) -> None:
    folder = shutil.copytree(CASE, tmp_path / "pi05")
    case = json.loads((folder / "case.json").read_text())
    case["config"]["rtc"] |= changes
    (folder / "case.json").write_text(json.dumps(case))
    result = check_folder(folder)
    bad = {each.tensor for each in result.comparisons if not each.ok}
    assert bad
    assert all(name.startswith("out.rtc_") for name in bad)
