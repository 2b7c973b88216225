"""Gemma layers: rotations, shared keys, adaptive norms, and extending a prefix against one pass over everything."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from mstar_plan.errors import ConfigError
from mstar_plan.models.vla.gemma import GemmaConfig, GemmaTower, Places, attend, rms_norm, rotary_turns, rotate

SIZES = GemmaConfig(width=12, depth=3, hidden=20, heads=4, kv_heads=2, head_width=6)


def test_scores_depend_on_the_distance_of_positions_alone() -> None:
    torch.manual_seed(0)
    x = torch.randn(1, 2, 3, SIZES.head_width)
    scores = []
    for shift in (0, 41):
        q, k = rotate(x, rotary_turns(torch.tensor([[2, 7]]) + shift, SIZES, torch.float32)).unbind(1)
        scores.append((q * k).sum())
    torch.testing.assert_close(*scores)
    turned = rotate(x, rotary_turns(torch.zeros(1, 2), SIZES, torch.float32))
    assert torch.equal(turned, x)


def test_shared_keys_give_what_copied_keys_give() -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 5, 4, 6), torch.randn(2, 2, 7, 6), torch.randn(2, 2, 7, 6)
    mask = torch.ones(2, 1, 1, 7, dtype=torch.bool)
    mask[1, ..., 3:5] = False
    keys, values = (each.repeat_interleave(2, 1) for each in (k, v))
    wanted = functional.scaled_dot_product_attention(q.transpose(1, 2), keys, values, attn_mask=mask)
    torch.testing.assert_close(attend(q, k, v, mask), wanted.transpose(1, 2).reshape(2, 5, 24))


def test_rms_norm_is_computed_in_float32() -> None:
    x = torch.full((1, 4), 300.0, dtype=torch.float16)  # its square overflows float16
    assert torch.equal(rms_norm(x, torch.full((4,), 2.0), 1e-6), torch.full((1, 4), 2.0, dtype=torch.float16))


@torch.inference_mode()
def test_extending_a_prefix_reads_what_filling_it_wrote() -> None:
    """Two tokens that see a prefix of four and each other, in one call and one after the other with a mask."""
    torch.manual_seed(0)
    tower = GemmaTower(SIZES).eval()
    prefix, tokens = torch.randn(1, 4, 12), torch.randn(1, 2, 12)

    def places(mask: torch.Tensor | None = None) -> Places:
        return Places(torch.zeros(3, 1, 2, 6, 6).unbind(0), torch.zeros(3, 1, 2, 6, 6).unbind(0), mask)

    def fill(at: Places) -> None:
        turns = rotary_turns(torch.arange(4)[None], SIZES, torch.float32)
        tower.fill(prefix, turns, Places([k[:, :, :4] for k in at.keys], [v[:, :, :4] for v in at.values], None))

    turns = rotary_turns(torch.tensor([[4, 5]]), SIZES, torch.float32)
    whole = places()
    fill(whole)
    together = tower.extend(tokens, turns, whole, 4)
    first = places(torch.arange(6)[None, None, None] < 5)
    fill(first)
    alone = tower.extend(tokens[:, :1], turns[:, :, :1], first, 4)
    assert not torch.allclose(alone, together[:, :1])  # in the whole, the first token sees the second
    again = tower.extend(tokens, turns, whole, 4)  # what it wrote is overwritten, not added to
    assert torch.equal(together, again)


@torch.inference_mode()
def test_adaptive_norms_with_neutral_numbers_are_plain_ones() -> None:
    torch.manual_seed(0)
    plain, adaptive = GemmaTower(SIZES), GemmaTower(SIZES, condition=5)
    adaptive.load_state_dict({k: v for k, v in plain.state_dict().items() if "scale" not in k}, strict=False)
    assert adaptive.modulation is not None
    adaptive.modulation.weight.zero_()
    adaptive.modulation.bias.copy_(torch.tensor([0.0, 0.0, 1.0]).repeat_interleave(12).repeat(7))  # gate 1
    table = adaptive.modulations(torch.randn(2, 5))
    assert table.shape == (2, 21, 12)
    x, turns = torch.randn(2, 3, 12), rotary_turns(torch.arange(3).expand(2, -1), SIZES, torch.float32)

    def places() -> Places:
        return Places(torch.zeros(3, 2, 2, 3, 6).unbind(0), torch.zeros(3, 2, 2, 3, 6).unbind(0), None)

    found = adaptive.extend(x, turns, places(), 0, table[:, :, None].unbind(1))
    torch.testing.assert_close(found, plain.extend(x, turns, places(), 0))
    adaptive.modulation.bias[2 * 12 : 3 * 12] = 0.0  # the gate of the first attention
    table = adaptive.modulations(torch.randn(2, 5))
    assert not torch.allclose(adaptive.extend(x, turns, places(), 0, table[:, :, None].unbind(1)), found)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"kv_heads": 3}, "4 query heads"),
        ({"head_width": 5}, "odd"),
        ({"depth": 0}, "depth"),
        ({"theta": 0.0}, "theta"),
    ],
)
def test_sizes_are_checked(changes: dict, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        GemmaConfig(**{"heads": 4, "kv_heads": 1, "head_width": 8, **changes})
