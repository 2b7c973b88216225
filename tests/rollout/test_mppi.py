"""MPPI's weights and refit against float64 references."""

import numpy as np
import pytest
import torch

from mstar_plan.errors import ConfigError
from mstar_plan.rollout.mppi import MPPI, MPPIConfig, path_weights
from mstar_plan.rollout.planner import PlannerState


def reference(costs: np.ndarray, temperature: float, normalise: bool) -> np.ndarray:
    scale = costs.std(axis=1, keepdims=True) if normalise else 1.0
    weights = np.exp(-(costs - costs.min(axis=1, keepdims=True)) / (temperature * scale))
    return weights / weights.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_weights_match_float64(normalise: bool, offset: float) -> None:
    costs = np.random.default_rng(0).random((3, 50)).astype(np.float32) + np.float32(offset)
    weights = path_weights(torch.from_numpy(costs), 0.3, normalise)
    np.testing.assert_allclose(weights, reference(costs.astype(np.float64), 0.3, normalise), rtol=1e-3, atol=1e-6)


def test_bad_costs_have_no_weight_and_change_nothing_else() -> None:
    costs = torch.tensor([[1.0, torch.nan, 2.0, torch.inf, 1.5]])
    weights = path_weights(costs, 0.5, True)
    good = reference(np.array([[1.0, 2.0, 1.5]]), 0.5, True)
    np.testing.assert_allclose(weights[0, [0, 2, 4]], good[0], rtol=1e-5)
    assert weights[0, [1, 3]].tolist() == [0.0, 0.0]
    all_bad = path_weights(torch.full((1, 4), torch.nan), 0.5, True)
    assert all_bad.tolist() == [[0.25] * 4]


def test_normalised_weights_do_not_depend_on_the_units_of_the_cost() -> None:
    costs = torch.rand(1, 30)
    torch.testing.assert_close(
        path_weights(costs, 0.2, True), path_weights(1000 * costs, 0.2, True), rtol=1e-3, atol=1e-6
    )


def test_equal_costs_have_equal_weights() -> None:
    torch.testing.assert_close(path_weights(torch.full((1, 8), 3.0), 0.1, True), torch.full((1, 8), 0.125))


@pytest.mark.parametrize("adapt", [False, True])
def test_refit_is_the_weighted_mean(adapt: bool) -> None:
    planner = MPPI(MPPIConfig(samples=12, elites=3, carry=3, adapt_std=adapt, std_floor=0.001))
    candidates, costs = torch.randn(2, 12, 4, 2), torch.rand(2, 12)
    old = PlannerState(torch.zeros(2, 4, 2), torch.full((2, 4, 2), 0.6), torch.zeros(2, 0, 4, 2))
    new = planner.refit(old, candidates, costs)
    weights = torch.from_numpy(reference(costs.double().numpy(), 0.2, True))
    mean = torch.einsum("bk,bkha->bha", weights, candidates.double())
    torch.testing.assert_close(new.mean.double(), mean, rtol=1e-4, atol=1e-5)
    spread = torch.einsum("bk,bkha->bha", weights, (candidates.double() - mean[:, None]) ** 2).sqrt()
    torch.testing.assert_close(new.std.double(), spread if adapt else old.std.double(), rtol=1e-3, atol=1e-5)


def test_a_temperature_that_is_not_positive_is_refused() -> None:
    with pytest.raises(ConfigError, match="temperature is 0"):
        MPPIConfig(temperature=0.0)
