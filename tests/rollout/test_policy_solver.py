"""A plan from a policy: alone, judged or refined, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch
from planning_worlds import Broken, request
from toy_policies import dart_thrower, throw, true_costs

from mstar_plan.errors import ComponentError, ConfigError, InvalidInputError, LimitExceededError
from mstar_plan.models.toy import ToyWorld
from mstar_plan.rollout.cem import CEMConfig
from mstar_plan.rollout.limits import PlanLimits
from mstar_plan.rollout.objective import ObjectiveConfig
from mstar_plan.rollout.policy_solver import MODES, PolicySolver, ProposalConfig
from mstar_plan.rollout.rerank_walk import rerank_graph
from mstar_plan.runtime.runtime import Runtime
from mstar_plan.types import Goal, PlanStatus

CONFIG = ProposalConfig(proposals=16, iterations=3, samples=32)


@contextmanager
def solver(mode="rerank", config=CONFIG, model=None, **options) -> Iterator[PolicySolver]:
    world, proposer = model or ToyWorld(), dart_thrower()
    planner = CEMConfig(samples=32, elites=6, carry=3)
    with Runtime(rerank_graph("both", proposer, world, planner, ObjectiveConfig())) as runtime:
        yield PolicySolver(world.spec, runtime, proposer, mode, config, **options)


def test_a_policy_alone_is_its_first_proposal():
    with solver("policy") as made:
        plan = made.solve(request(seed=5))
    np.testing.assert_array_equal(plan.actions, throw(torch.tensor([5]), 1)[0, 0].clamp(-1, 1))
    assert math.isnan(plan.cost)
    assert (plan.samples, plan.cost_history, plan.status) == (1, (), PlanStatus.COMPLETE)


def test_a_judged_plan_says_what_it_costs():
    with solver("rerank") as made:
        plan = made.solve(request((-0.3, 0.2), (0.4, -0.4), seed=5))
    thrown = throw(torch.tensor([5]), 16)[0].clamp(-1, 1)
    costs = true_costs((-0.3, 0.2), (0.4, -0.4), thrown)
    np.testing.assert_array_equal(plan.actions, thrown[costs.argmin()])
    assert plan.cost == pytest.approx(costs.min().item(), abs=2e-3)
    assert (plan.samples, plan.iterations, plan.cost_history) == (16, 1, (plan.cost,))
    assert plan.timing.total_ms > 0


def test_a_refined_plan_is_a_search_from_there():
    near = request((-0.3, 0.2), (-0.1, 0.15), seed=5)
    with solver("rerank") as made:
        judged = made.solve(near)
    with solver("refine") as made:
        plan = made.solve(near)
        sooner = made.solve(near.but(iterations=1))
    assert plan.cost < judged.cost
    assert (plan.iterations, plan.samples, len(plan.cost_history)) == (3, 32, 3)
    assert plan.warm_start is not None
    assert plan.cost <= sooner.cost <= judged.cost
    assert sooner.iterations == 1


@pytest.mark.parametrize("mode", MODES)
def test_the_same_request_gives_the_same_plan(mode):
    with solver(mode) as made:
        first, second, other = (made.solve(request(seed=seed)) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first.actions, second.actions)
    assert not np.array_equal(first.actions, other.actions)


def test_a_goal_must_be_a_picture():
    with solver() as made, pytest.raises(InvalidInputError, match="goal"):
        made.solve(replace(request(), goal=Goal(state=np.zeros(2, np.float32))))


@pytest.mark.parametrize(
    ("change", "error"), [({"horizon": 65}, LimitExceededError), ({"horizon": 7}, InvalidInputError)]
)
def test_too_long_a_horizon(change, error):
    with solver() as made, pytest.raises(error, match="horizon"):
        made.solve(request().but(**change))


def test_limits_hold():
    limits = PlanLimits(max_samples=8)
    with solver("refine", limits=limits) as made, pytest.raises(LimitExceededError, match="samples"):
        made.solve(request())


def test_a_world_model_that_fails_is_told():
    with solver(model=Broken()) as made, pytest.raises(ComponentError, match="finite"):
        made.solve(request())
    with solver("policy", model=Broken()) as made:
        assert np.isfinite(made.solve(request()).actions).all()  # it is not asked


def test_settings_are_checked():
    with pytest.raises(ConfigError, match="mode is 'guess'"), solver("guess"):
        pass
    for name in ("proposals", "steps", "iterations", "samples"):
        with pytest.raises(ConfigError, match=name):
            ProposalConfig(**{name: 0})
    with pytest.raises(ConfigError, match="horizon"):
        ProposalConfig(horizon=-1)
