"""CEM's refit against its formula in numpy."""

import numpy as np
import pytest
import torch

from mstar_plan.errors import ConfigError
from mstar_plan.rollout.cem import CEM, CEMConfig
from mstar_plan.rollout.noise import NoiseConfig
from mstar_plan.rollout.planner import PlannerState


@pytest.mark.parametrize(("momentum", "momentum_std"), [(0.0, 0.0), (0.25, 0.9)])
def test_refit_matches_numpy(momentum: float, momentum_std: float) -> None:
    random = np.random.default_rng(0)
    planner = CEM(CEMConfig(samples=20, elites=4, carry=2, momentum=momentum, momentum_std=momentum_std, std_floor=0.3))
    mean, std = random.normal(size=(2, 2, 5, 3)), random.random((2, 5, 3)) + 0.1
    candidates, costs = random.normal(size=(2, 20, 5, 3)), random.random((2, 20))
    old = PlannerState(*(torch.from_numpy(x.astype(np.float32)) for x in (mean[0], std)), torch.zeros(2, 0, 5, 3))
    new = planner.refit(old, torch.from_numpy(candidates.astype(np.float32)), torch.from_numpy(costs))
    for b in range(2):
        elites = candidates[b][np.argsort(costs[b])[:4]]
        expected_mean = momentum * mean[0][b] + (1 - momentum) * elites.mean(0)
        expected_std = np.maximum(0.3, momentum_std * std[b] + (1 - momentum_std) * elites.std(0))
        np.testing.assert_allclose(new.mean[b], expected_mean, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(new.std[b], expected_std, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(new.elites[b], elites[:2], rtol=1e-6)


def test_candidates_are_mean_plus_noise_times_spread() -> None:
    planner = CEM(CEMConfig(noise=NoiseConfig("white"), zero_candidate=False))
    state = PlannerState(torch.full((1, 4, 2), 0.5), torch.tensor([0.1, 2.0]).expand(1, 4, 2), torch.zeros(1, 0, 4, 2))
    drawn = planner.propose(state, torch.tensor([3]), torch.tensor([0]), 20_000)[0, 1:]
    torch.testing.assert_close(drawn.mean((0, 1)), torch.tensor([0.5, 0.5]), rtol=0, atol=0.03)
    torch.testing.assert_close(drawn.std((0, 1)), torch.tensor([0.1, 2.0]), rtol=0.02, atol=0)


@pytest.mark.parametrize("field", ["momentum", "momentum_std"])
def test_momentum_of_one_is_refused(field: str) -> None:
    with pytest.raises(ConfigError) as error:
        CEMConfig(**{field: 1.0})
    assert error.value.field == field
