"""Diagnostics on latents whose answers are known."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mstar_plan.models.jepa import JepaMember
from mstar_plan.training.diagnostics import (
    distance_rank_correlation,
    effective_rank,
    encode_frames,
    probe_r2,
    rollout_error,
)


class Adder:
    def step(self, latent, action):
        return latent + action


def test_effective_rank_counts_directions():
    torch.manual_seed(0)
    assert effective_rank(torch.randn(5000, 6)) == pytest.approx(6, abs=0.05)
    assert effective_rank(torch.randn(5000, 2) @ torch.randn(2, 6)) < 2.01
    assert effective_rank(torch.randn(5000, 1).expand(-1, 6) + 5) == pytest.approx(1, abs=0.01)


def test_probe_reads_linear_values_and_not_noise():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(2000, 5))
    y = np.stack([z @ [1, 2, 0, 0, -1] + 3, rng.normal(size=2000), z[:, 0] + rng.normal(size=2000)], axis=1)
    linear, noise, half = probe_r2(z, y)
    assert linear > 0.999
    assert noise < 0.05
    assert half == pytest.approx(0.5, abs=0.1)


def test_rollout_error_is_zero_for_the_truth_and_grows_for_others():
    torch.manual_seed(0)
    actions = torch.randn(6, 10, 3)
    z = torch.cat([torch.zeros(6, 1, 3), actions.cumsum(1)], dim=1)
    assert max(rollout_error(Adder(), z, actions, 5)) < 1e-10
    assert len(rollout_error(Adder(), z, actions, 10)) == 10
    errors = rollout_error(Adder(), z, torch.zeros_like(actions), 5)
    assert errors == sorted(errors)
    variance = float(z.flatten(0, 1).var(dim=0).sum())
    assert errors[0] == pytest.approx(float(actions[:, :6].square().sum(-1).mean()) / variance, rel=1e-4)


def test_rank_correlation_is_one_for_any_growing_distance():
    torch.manual_seed(0)
    z = torch.randn(500, 2)
    assert distance_rank_correlation(lambda z: 3 * z, z, z.numpy()) > 0.999
    assert distance_rank_correlation(lambda z: z[:, :1] * 0 + torch.randn(500, 1), z, z.numpy()) < 0.1


def test_encode_frames_keeps_the_axes_and_the_running_statistics(episodes, small_model):
    member = JepaMember(small_model)
    z = encode_frames(member, episodes.frames[:2], batch=7)
    assert z.shape == (2, 9, 6)
    member.eval()
    with torch.no_grad():
        expected = member.encoder(torch.from_numpy(episodes.frames[1]))
    torch.testing.assert_close(z[1], expected, rtol=1e-4, atol=1e-5)
