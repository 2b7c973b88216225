"""Rotations as complex factors are the published rotations of halves, once the rows are reordered."""

from __future__ import annotations

from dataclasses import replace

import torch
from tiny_llama import CONFIG

from mstar_plan.models.llama.config import RopeScaling
from mstar_plan.models.llama.rope import frequencies, interleave, rotations


def test_pairs_turn_as_halves_do() -> None:
    width, x = CONFIG.head_dim, torch.randn(5, 1, CONFIG.head_dim)
    angles = torch.outer(torch.arange(5.0), frequencies(CONFIG).float())
    cos, sin = (torch.cat([f(angles)] * 2, -1)[:, None] for f in (torch.cos, torch.sin))
    halves = x * cos + torch.cat([-x[..., width // 2 :], x[..., : width // 2]], -1) * sin
    reordered = interleave(x[:, 0].T.contiguous(), 1).T[:, None]
    turned = torch.view_as_real(
        torch.view_as_complex(reordered.reshape(5, 1, -1, 2).contiguous()) * rotations(CONFIG)[:5]
    ).flatten(2)
    torch.testing.assert_close(turned[:, 0], interleave(halves[:, 0].T.contiguous(), 1).T, atol=1e-5, rtol=1e-5)


def test_slow_frequencies_are_stretched_and_fast_ones_kept() -> None:
    plain = frequencies(CONFIG)
    made = frequencies(replace(CONFIG, rope_scaling=RopeScaling(8.0, 1.0, 4.0, 64)))
    assert made[0] == plain[0]
    torch.testing.assert_close(made[-1], plain[-1] / 8)
    assert bool(((made <= plain) & (made >= plain / 8)).all())
