"""A policy in closed loop in the toy world, whose law is known."""

from __future__ import annotations

import numpy as np
import pytest
from planning_worlds import Glider
from toy_policies import dart_thrower

from mstar_plan.errors import ConfigError, InvalidInputError
from mstar_plan.models.toy import DT_S, ToyWorld, render
from mstar_plan.rollout.cem import CEMConfig
from mstar_plan.rollout.controller_config import ControllerConfig
from mstar_plan.rollout.objective import ObjectiveConfig
from mstar_plan.rollout.policy_controller import PolicyController
from mstar_plan.rollout.policy_solver import MODES, PolicySolver, ProposalConfig
from mstar_plan.rollout.rerank_walk import rerank_graph
from mstar_plan.runtime.runtime import Runtime
from mstar_plan.types import Goal, Observation

HERE, THERE = np.array([-0.5, 0.3]), np.array([0.3, -0.2])


@pytest.fixture(scope="module")
def runtime():
    graph = rerank_graph("both", dart_thrower(), ToyWorld(), CEMConfig(samples=32, elites=6), ObjectiveConfig())
    with Runtime(graph) as made:
        yield made


def controller(runtime, mode, model=None, **control):
    config = ProposalConfig(proposals=24, iterations=2, samples=32)
    solver = PolicySolver((model or ToyWorld()).spec, runtime, dart_thrower(), mode, config)
    return PolicyController(solver, ControllerConfig(**control))


def drive(made, steps=16, seed=0):
    """The places [steps + 1, 2] of an episode."""
    made.reset(Goal(frame=render(THERE)), seed=seed)
    places = [HERE]
    for _ in range(steps):
        action = made.act(Observation(render(places[-1])[None]))
        places.append(np.clip(places[-1] + DT_S * action, -1, 1))
    return np.stack(places)


def test_judgement_brings_a_blind_policy_to_its_goal(runtime):
    left = {
        mode: [np.linalg.norm(drive(controller(runtime, mode), seed=seed)[-1] - THERE) for seed in range(3)]
        for mode in MODES
    }
    assert min(left["policy"]) > 0.3
    assert max(left["rerank"]) < 0.1
    assert max(left["refine"]) < 0.05


def test_an_episode_follows_from_its_seed(runtime):
    made = controller(runtime, "rerank")
    first, again, other = drive(made, 5), drive(made, 5), drive(made, 5, seed=1)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_chunks_are_executed_as_told(runtime):
    made = controller(runtime, "rerank", execute=2, action_repeat=3)
    made.reset(Goal(frame=render(THERE)))
    actions, plans = [], []
    for _ in range(12):
        actions.append(made.act(Observation(render(HERE)[None])))
        plans.append(made.last_plan)
    assert [plan is plans[0] for plan in plans] == [True] * 6 + [False] * 6
    for n in range(6):
        np.testing.assert_array_equal(actions[n], plans[0].actions[n // 3])
    assert plans[0].seed != plans[6].seed


def test_what_is_left_of_a_chunk_stays_a_candidate(runtime):
    """The same episode ends nearer, since a good chunk is not thrown away for worse ones."""
    left = {}
    for warm in (False, True):
        made = controller(runtime, "rerank", warm_start=warm)
        ends = [drive(made, 10, seed)[-1] for seed in range(6)]
        left[warm] = np.mean([np.linalg.norm(end - THERE) for end in ends])
    assert left[True] < left[False]


def test_the_warm_start_is_what_was_not_executed(runtime):
    made = controller(runtime, "rerank", execute=2)
    asked = []
    solve = made.solver.solve
    object.__setattr__(made.solver, "solve", lambda request: asked.append(request) or solve(request))
    drive(made, 4)
    first, second = asked
    assert first.warm_start is None
    chunk = solve(first).actions
    np.testing.assert_array_equal(second.warm_start.mean[:4], chunk[2:])
    np.testing.assert_array_equal(second.warm_start.mean[4:], np.zeros((2, 2)))


def test_mistakes_are_told(runtime):
    made = controller(runtime, "rerank")
    with pytest.raises(InvalidInputError, match="before reset"):
        made.act(Observation(render(HERE)[None]))
    with pytest.raises(InvalidInputError, match="picture"):
        made.reset(Goal(latent=np.zeros((1, 2), np.float32)))
    with pytest.raises(ConfigError, match="over horizon 6"):
        controller(runtime, "rerank", execute=7)
    with pytest.raises(ConfigError, match="sees 2 frames"):
        controller(runtime, "rerank", model=Glider())
