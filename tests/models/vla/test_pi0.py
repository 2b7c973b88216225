"""pi0: live against transformers at random sizes, and its state token."""

from __future__ import annotations

import pytest
import torch
from transformers import PI0Config, PI0ForConditionalGeneration
from vla_worlds import observed, tiny_pi

from mstar_plan.errors import InvalidInputError
from mstar_plan.models.vla.act_walk import sample_chunk
from mstar_plan.models.vla.pi0 import Pi0Policy
from mstar_plan.models.vla.pi_checkpoint import load_pi
from mstar_plan.models.vla.pi_config import read_pi_config

IMAGE_TOKEN = 90


def published_config(seed: int) -> dict:
    """Random sizes in transformers' form."""
    pick = torch.Generator().manual_seed(seed)

    def one_of(*choices: int) -> int:
        return choices[int(torch.randint(len(choices), (1,), generator=pick))]

    heads, kv_heads, head_width, depth = one_of(2, 4), one_of(1, 2), one_of(6, 8), one_of(1, 2, 3)
    shared = {
        "model_type": "gemma", "num_hidden_layers": depth, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "head_dim": head_width, "vocab_size": 91,
    }  # fmt: skip
    width = one_of(24, 32)
    vision = {
        "model_type": "siglip_vision_model", "hidden_size": 12, "intermediate_size": one_of(16, 20),
        "num_hidden_layers": one_of(1, 2), "num_attention_heads": one_of(1, 3), "image_size": one_of(14, 28),
        "patch_size": 7, "vision_use_head": False, "projection_dim": width,
    }  # fmt: skip
    text = {**shared, "hidden_size": width, "intermediate_size": one_of(32, 40)}
    return {
        "vlm_config": {
            "model_type": "paligemma", "text_config": text, "vision_config": vision,
            "image_token_index": IMAGE_TOKEN, "projection_dim": width, "hidden_size": width,
        },
        "dit_config": {**shared, "hidden_size": one_of(10, 16), "intermediate_size": 20},
        "chunk_size": one_of(1, 4, 7),
        "max_state_dim": one_of(3, 6),
        "max_action_dim": one_of(2, 5),
        "num_inference_steps": one_of(2, 5),
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(5))
@torch.inference_mode()
def test_equals_transformers(seed: int) -> None:
    sizes = published_config(seed)
    torch.manual_seed(seed)
    theirs = PI0ForConditionalGeneration(PI0Config(**sizes)).eval()
    for name, parameter in theirs.named_parameters():
        torch.nn.init.normal_(parameter, std=0.1 if "norm" in name else 0.2)
    config = read_pi_config("pi0", sizes)
    ours = load_pi(config, {name: tensor.clone() for name, tensor in theirs.state_dict().items()})
    rows, cameras, side, patches = 3, 2, config.vision.image_size, config.vision.patches
    pixels = torch.rand(rows, cameras, 3, side, side) * 2 - 1
    there = torch.tensor([[True, True], [True, False], [True, True]])
    lengths, tokens = (6, 6, 4), torch.randint(1, IMAGE_TOKEN, (rows, 6))
    mask = torch.arange(6) < torch.tensor(lengths)[:, None]
    ids = torch.zeros(rows, cameras * patches + 6, dtype=torch.int64)
    attention = torch.zeros_like(ids)
    for row, length in enumerate(lengths):  # as its processor lays them out: runs of image tokens, text, padding
        images = int(there[row].sum()) * patches
        ids[row, :images] = IMAGE_TOKEN
        ids[row, images : images + length] = tokens[row, :length]
        attention[row, : images + length] = 1
    state = torch.randn(rows, config.state_width)
    noise = torch.randn(rows, config.chunk, config.action_width)
    seen = {"images": pixels, "image_mask": there, "tokens": tokens, "token_mask": mask, "state": state}
    prefix = ours.see(seen)
    for steps in (config.steps, 3):
        wanted = theirs.sample_actions(
            state, ids, pixels, noise, attention_mask=attention, pixel_attention_mask=there, num_steps=steps
        )
        torch.testing.assert_close(sample_chunk(ours, prefix, noise, steps), wanted, atol=2e-5, rtol=1e-4)


@torch.inference_mode()
def test_the_state_token_sees_neither_actions_nor_time() -> None:
    """Its keys and values are there after `see`, and no step changes them."""
    policy = tiny_pi("pi0")
    prefix = policy.see(observed(policy, 2))
    before = prefix.kv_LBGKW[:, :, :, : prefix.length].clone()
    assert (before[:, :, :, -1] != 0).all()
    noise = torch.randn(2, policy.chunk, policy.action_width)
    first = sample_chunk(policy, prefix, noise, 3)
    assert torch.equal(prefix.kv_LBGKW[:, :, :, : prefix.length], before)
    assert torch.equal(sample_chunk(policy, prefix, noise, 3), first)


def test_mistakes_are_told() -> None:
    policy = tiny_pi("pi0")
    assert isinstance(policy, Pi0Policy)
    with pytest.raises(InvalidInputError, match=r"needs \[B, 6\]"):
        policy.embed_state(torch.zeros(1, 5))
    prefix = policy.see(observed(policy))
    x = torch.zeros(1, policy.chunk, policy.action_width)
    with pytest.raises(InvalidInputError, match="guided"):
        policy.velocity(x, policy.conditions(2)[:1], prefix, torch.zeros(1, policy.chunk, dtype=torch.bool))
