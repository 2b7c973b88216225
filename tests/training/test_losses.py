"""Losses: zero where they should be, large where they should be."""

from __future__ import annotations

import pytest
import torch

from mstar_plan.errors import ConfigError
from mstar_plan.training.losses import (
    LossConfig,
    covariance_loss,
    inverse_dynamics_loss,
    rollout_loss,
    sigreg_loss,
    slowness_loss,
    total_loss,
    variance_loss,
)


class Adder:
    """Known dynamics: the latent moves by the action."""

    def step(self, latent, action):
        return latent + action


@pytest.fixture
def windows():
    torch.manual_seed(0)
    actions = torch.randn(16, 4, 3)
    start = torch.randn(16, 1, 3)
    return torch.cat([start, start + actions.cumsum(1)], dim=1), actions


def test_rollout_is_zero_for_the_true_dynamics_and_feeds_itself(windows):
    latents, actions = windows
    assert float(rollout_loss(Adder(), latents, actions)) == pytest.approx(0, abs=1e-10)
    wrong = latents.clone()
    wrong[:, 2] += 1.0  # an intermediate target moves one of four errors only: predictions are fed back, not targets
    assert float(rollout_loss(Adder(), wrong, actions)) == pytest.approx(0.25, rel=1e-5)


def test_rollout_sends_gradient_through_targets(windows):
    latents, actions = windows
    latents = (latents + 0.1 * torch.randn_like(latents)).requires_grad_()
    rollout_loss(Adder(), latents, actions).backward()
    assert (latents.grad.abs().sum(dim=(0, 2)) > 0).all()


def test_inverse_dynamics_is_zero_for_the_right_reader(windows):
    latents, actions = windows

    def reader(pair):
        return pair[..., 3:] - pair[..., :3]

    assert float(inverse_dynamics_loss(reader, latents, actions)) == pytest.approx(0, abs=1e-10)
    assert float(inverse_dynamics_loss(lambda pair: 0 * pair[..., :3], latents, actions)) > 0.5


def test_variance_punishes_collapse_only():
    spread = 2 * torch.randn(500, 4)
    assert float(variance_loss(spread)) == 0
    assert float(variance_loss(torch.zeros(500, 4))) == pytest.approx(0.99, abs=0.01)
    assert 0.2 < float(variance_loss(spread * torch.tensor([1.0, 1.0, 1.0, 0.0]))) < 0.3


def test_covariance_punishes_copies():
    torch.manual_seed(0)
    free = torch.randn(4000, 2)
    assert float(covariance_loss(free)) < 0.01
    copied = free[:, :1].expand(-1, 2)
    assert float(covariance_loss(copied)) == pytest.approx(float(copied[:, 0].var()) ** 2, rel=1e-4)


def test_sigreg_tells_gaussians_from_others():
    torch.manual_seed(0)
    gaussian = torch.randn(2000, 6)
    reference = float(sigreg_loss(gaussian))
    for other in (torch.zeros(2000, 6), 3 * gaussian, gaussian + 1, torch.sign(gaussian[:, :1]).expand(-1, 6)):
        assert float(sigreg_loss(other)) > 10 * reference


def test_sigreg_pulls_towards_a_gaussian():
    torch.manual_seed(0)
    z = (0.1 * torch.randn(256, 2)).requires_grad_()
    optimiser = torch.optim.Adam([z], 0.05)
    for _ in range(100):
        optimiser.zero_grad()
        sigreg_loss(z).backward()
        optimiser.step()
    assert z.detach().std(0).tolist() == pytest.approx([1, 1], abs=0.25)


def test_slowness_is_the_mean_squared_change():
    assert float(slowness_loss(torch.arange(5.0).view(1, 5, 1) * 2)) == 4.0


def test_total_is_the_weighted_sum_of_the_terms_asked_for(windows):
    latents, actions = windows
    config = LossConfig(inverse=2.0, variance=0.5, covariance=0.1, slowness=3.0)
    total, terms = total_loss(Adder(), lambda pair: pair[..., :3], latents, actions, config)
    assert set(terms) == {"rollout", "inverse", "variance", "covariance", "slowness"}
    expected = terms["rollout"] + sum(getattr(config, name) * terms[name] for name in set(terms) - {"rollout"})
    assert float(total) == pytest.approx(expected, rel=1e-5)
    _, terms = total_loss(Adder(), None, latents, actions, LossConfig(0, 0, 0, 0.1, 0))
    assert set(terms) == {"rollout", "sigreg"}


def test_bad_weights_are_refused():
    with pytest.raises(ConfigError, match="covariance is -1"):
        LossConfig(covariance=-1)
    with pytest.raises(ConfigError, match="would collapse"):
        LossConfig(variance=0)
    LossConfig(variance=0, sigreg=0.05)
