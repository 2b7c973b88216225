"""What all planners share: candidates in order, elites sorted, bad costs last, rows independent, optimum found."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mstar_plan.errors import ConfigError
from mstar_plan.rollout.cem import CEMConfig
from mstar_plan.rollout.icem import ICEMConfig
from mstar_plan.rollout.mppi import MPPIConfig
from mstar_plan.rollout.planner import (
    PLANNER_CONFIGS,
    PLANNERS,
    Planner,
    PlannerConfig,
    PlannerState,
    assemble,
    best_first,
    converged,
    make_planner,
)
from mstar_plan.rollout.random_shooting import RandomShootingConfig
from mstar_plan.rollout.vjepa2_cem import VJEPA2CEMConfig

CPU = torch.device("cpu")
CONFIGS = [CEMConfig(), ICEMConfig(), MPPIConfig(), RandomShootingConfig()]
ALL = [*CONFIGS, VJEPA2CEMConfig()]  # the last one carries nothing
H, A = 6, 2
OPTIMUM = torch.linspace(-0.7, 0.8, H * A).reshape(H, A)


def quadratic(candidates: torch.Tensor) -> torch.Tensor:
    """Costs whose only optimum is known."""
    return (candidates - OPTIMUM).square().mean((2, 3))


def search(
    planner: Planner,
    seeds: list[int],
    cost: Callable[[torch.Tensor], torch.Tensor],
    iterations: int = 15,
    warm: PlannerState | None = None,
) -> tuple[PlannerState, torch.Tensor]:
    """The state and the best cost [B] after some iterations."""
    seed = torch.tensor(seeds)
    state, samples = planner.init((len(seeds), H, A), warm, CPU), planner.config.samples
    best = torch.full((len(seeds),), torch.inf)
    for i in range(iterations):
        candidates = planner.propose(state, seed, torch.full_like(seed, i), samples).clamp(-1, 1)
        assert candidates.shape == (len(seeds), samples, H, A)
        costs = cost(candidates)
        state = planner.refit(state, candidates, costs)
        best, samples = torch.minimum(best, costs.amin(1)), planner.next_samples(samples)
    return state, best


@pytest.mark.parametrize("config", ALL, ids=lambda c: c.planner)
def test_the_known_optimum_is_found(config: PlannerConfig) -> None:
    reached = {"cem": 0.01, "icem": 0.03, "mppi": 0.02, "random_shooting": 0.2, "vjepa2_cem": 0.02}[config.planner]
    _, best = search(make_planner(config), [0, 1, 2], quadratic)
    assert best.max() < reached
    assert best.max() < quadratic(torch.zeros(1, 1, H, A)).item(), "it is no better than keeping still"


@pytest.mark.parametrize("config", ALL, ids=lambda c: c.planner)
def test_a_row_alone_equals_the_row_in_a_batch(config: PlannerConfig) -> None:
    planner = make_planner(config)
    together, _ = search(planner, [7, 8, 9], quadratic, 4)
    for row, seed in enumerate([7, 8, 9]):
        alone, _ = search(planner, [seed], quadratic, 4)
        for name in ("mean", "std", "elites"):
            torch.testing.assert_close(getattr(alone, name)[0], getattr(together, name)[row], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.planner)
def test_elites_are_sorted_and_carried(config: PlannerConfig) -> None:
    planner = make_planner(config)
    state, best = search(planner, [1, 2], quadratic, 3)
    assert state.elites.shape == (2, config.carry, H, A)
    costs = quadratic(state.elites)
    assert (costs.diff(dim=1) >= 0).all()
    torch.testing.assert_close(costs[:, 0], best)  # carried elites are candidates again: the best is never lost
    again = planner.propose(state, torch.tensor([1, 2]), torch.tensor([3, 3]), config.samples)
    assert torch.equal(again[:, 0], state.mean)
    assert torch.equal(again[:, 1 : 1 + config.carry], state.elites)
    assert (again[:, 1 + config.carry] == 0).all()


@pytest.mark.parametrize("config", ALL, ids=lambda c: c.planner)
@given(seed=st.integers(0, 2**62), share=st.floats(0, 1))
@settings(max_examples=15, deadline=None)
def test_costs_that_are_not_finite_never_spoil_the_distribution(config: PlannerConfig, seed: int, share: float) -> None:
    planner = make_planner(config)
    random = np.random.default_rng(seed)

    def broken(candidates: torch.Tensor) -> torch.Tensor:
        costs = quadratic(candidates)
        mask = torch.from_numpy(random.random(costs.shape) < share)
        return torch.where(mask, torch.tensor(random.choice([np.nan, np.inf, -np.inf])), costs)

    state, _ = search(planner, [seed], broken, 3)
    assert all(getattr(state, name).isfinite().all() for name in ("mean", "std", "elites"))


def test_a_failed_candidate_is_no_elite() -> None:
    candidates = torch.arange(8.0).reshape(1, 8, 1, 1).expand(1, 8, H, A) / 10
    costs = torch.tensor([[3.0, torch.nan, 1.0, torch.inf, -torch.inf, torch.nan, torch.inf, torch.nan]])
    assert best_first(costs, 4).tolist() == [[2, 0, 2, 2]]
    for config in (
        CEMConfig(samples=8, elites=4, carry=2, zero_candidate=False),
        MPPIConfig(samples=8, elites=2, carry=2),
    ):
        planner = make_planner(config)
        state = planner.refit(planner.init((1, H, A), None, CPU), candidates, costs)
        assert 0.0 <= state.mean.min() <= state.mean.max() <= 0.2 + 1e-6


def test_equal_costs_are_taken_in_order() -> None:
    assert best_first(torch.zeros(2, 9), 3).tolist() == [[0, 1, 2]] * 2


def test_warm_start_brings_mean_and_elites_but_not_the_spread() -> None:
    planner = make_planner(CEMConfig())
    mean, elites = torch.full((1, H, A), 0.3), torch.rand(1, 4, H, A)
    state = planner.init((1, H, A), PlannerState(mean, mean, elites), CPU)
    assert torch.equal(state.mean, mean)
    assert torch.equal(state.elites, elites)
    assert (state.std == planner.config.std).all()
    fresh = planner.init((2, H, A), None, CPU)
    assert fresh.elites.shape == (2, 0, H, A)
    assert not fresh.mean.any()


def test_few_candidates_keep_the_mean_first() -> None:
    state = PlannerState(torch.full((1, H, A), 0.5), torch.ones(1, H, A), torch.zeros(1, 3, H, A))
    candidates = assemble(state, torch.full((1, 2, H, A), 9.0), zero=True)
    assert candidates.shape == (1, 2, H, A)
    assert (candidates[:, 0] == 0.5).all()
    assert not candidates[:, 1].any()


def test_convergence_is_judged_by_row() -> None:
    std = torch.tensor([0.01, 0.5]).reshape(2, 1, 1).expand(2, H, A)
    state = PlannerState(std, std, torch.zeros(2, 0, H, A))
    assert converged(state, 0.02).tolist() == [True, False]
    assert converged(state, 0.0).tolist() == [False, False]


def test_tables_name_what_there_is() -> None:
    assert set(PLANNERS) == set(PLANNER_CONFIGS) == {c.planner for c in ALL}
    for config in ALL:
        assert f"{type(config).__module__}:{type(config).__name__}" == PLANNER_CONFIGS[config.planner]
        assert isinstance(make_planner(config), Planner)
    with pytest.raises(ConfigError, match="known: cem"):
        make_planner(PlannerConfig())


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("samples", {"samples": 0}),
        ("elites", {"elites": 97}),
        ("carry", {"carry": 11}),
        ("std", {"std": 0.0}),
        ("std_floor", {"std_floor": 0.7}),
        ("tolerance", {"tolerance": -1.0}),
    ],
)
def test_settings_that_contradict_are_refused(field: str, values: dict[str, object]) -> None:
    with pytest.raises(ConfigError) as error:
        CEMConfig(**values)
    assert error.value.field == field
