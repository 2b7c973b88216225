"""Random shooting draws over the whole of the bounds, and keeps its best."""

import torch

from mstar_plan.rollout.noise import NoiseConfig
from mstar_plan.rollout.planner import PlannerState
from mstar_plan.rollout.random_shooting import RandomShooting, RandomShootingConfig

START = PlannerState(torch.zeros(1, 5, 2), torch.ones(1, 5, 2), torch.zeros(1, 0, 5, 2))


def test_candidates_are_uniform_over_the_bounds() -> None:
    planner = RandomShooting(RandomShootingConfig(zero_candidate=False))
    drawn = planner.propose(START, torch.tensor([0]), torch.tensor([0]), 40_000)[0, 1:, 3, 1]
    shares = torch.histc(drawn, bins=8, min=-1, max=1) / len(drawn)
    torch.testing.assert_close(shares, torch.full((8,), 0.125), rtol=0.06, atol=0)
    assert drawn.abs().max() <= 1


def test_correlation_over_the_horizon_stays() -> None:
    for rho, low, high in ((0.0, -0.05, 0.05), (0.8, 0.72, 0.84)):
        planner = RandomShooting(RandomShootingConfig(noise=NoiseConfig("ar1", rho=rho)))
        drawn = planner.propose(START, torch.tensor([0]), torch.tensor([0]), 20_000)[0, 2:, :, 0]
        assert low < torch.corrcoef(drawn.T)[1, 2] < high


def test_the_best_becomes_the_mean() -> None:
    planner = RandomShooting(RandomShootingConfig())
    candidates = planner.propose(START, torch.tensor([0]), torch.tensor([0]), 16)
    costs = torch.arange(16.0)[None].roll(5, 1)
    state = planner.refit(START, candidates, costs)
    assert torch.equal(state.mean[0], candidates[0, 5])
    assert torch.equal(state.elites[0, 0], candidates[0, 5])
