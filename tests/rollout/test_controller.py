"""Closed loop on the toy world: the controller arrives, and remembers what it should."""

import numpy as np
import pytest
from planning_worlds import Glider, Slow, solver_for

from mstar_plan.errors import ConfigError, InvalidInputError
from mstar_plan.models.toy import ToyWorld, render
from mstar_plan.rollout.cem import CEMConfig
from mstar_plan.rollout.controller import PlanningController
from mstar_plan.rollout.controller_config import ControllerConfig
from mstar_plan.rollout.solver import PlanSolver
from mstar_plan.types import Controller, Goal, Observation

FAST = CEMConfig(samples=48, iterations=3, horizon=8, elites=6, carry=3)
START, GOAL = np.array([-0.5, 0.3]), np.array([0.4, -0.3])


def drive(
    controller: PlanningController, steps: int, seed: int = 0, dt_s: float = 0.1
) -> tuple[np.ndarray, np.ndarray]:
    """Actions [steps, 2] and the place that they lead to."""
    controller.reset(Goal(frame=render(GOAL)), seed)
    place, actions = START.copy(), []
    for seq in range(steps):
        action = controller.act(Observation(render(place)[None], seq=seq))
        actions.append(action)
        place = place + dt_s * action
    return np.array(actions), place


def test_it_arrives_and_stays() -> None:
    with solver_for(ToyWorld(), FAST) as solver:
        controller = PlanningController(solver)
        assert isinstance(controller, Controller)
        _, place = drive(controller, 20)
        assert np.abs(place - GOAL).max() < 0.02
        assert controller.last_plan.observation_seq == 19


def test_an_episode_is_a_function_of_its_seed() -> None:
    with solver_for(ToyWorld(), FAST) as solver:
        controller = PlanningController(solver)
        first, again, other = (drive(controller, 4, seed)[0] for seed in (1, 1, 2))
    assert np.array_equal(first, again), "an episode must leave nothing behind for the next one"
    assert not np.array_equal(first, other)


def test_a_warm_start_helps_a_small_search() -> None:
    small = CEMConfig(samples=16, iterations=1, horizon=8, elites=4, carry=3)
    with solver_for(ToyWorld(), small) as solver:
        ends = {
            warm: np.mean(
                [
                    np.abs(
                        drive(PlanningController(solver, ControllerConfig(warm_start=warm)), 15, seed)[1] - GOAL
                    ).max()
                    for seed in range(4)
                ]
            )
            for warm in (True, False)
        }
    assert ends[True] < ends[False]


class Counting:
    """A solver that counts what is asked of it."""

    def __init__(self, solver: PlanSolver) -> None:
        self.solver, self.spec, self.defaults = solver, solver.spec, solver.defaults
        self.requests, self.encoded = [], 0

    def encode(self, frame):
        self.encoded += 1
        return self.solver.encode(frame)

    def solve(self, request):
        self.requests.append(request)
        return self.solver.solve(request)


@pytest.mark.parametrize(("execute", "repeat", "plans"), [(1, 1, 12), (3, 1, 4), (1, 2, 6), (3, 2, 2)])
def test_actions_are_executed_and_repeated_as_told(execute: int, repeat: int, plans: int) -> None:
    with solver_for(ToyWorld(), FAST) as solver:
        counting = Counting(solver)
        controller = PlanningController(counting, ControllerConfig(execute=execute, action_repeat=repeat))
        actions, _ = drive(controller, 12, dt_s=0.1 / repeat)
    assert len(counting.requests) == plans
    assert counting.encoded == 1, "the goal is encoded once an episode"
    held = actions.reshape(-1, repeat, 2)
    assert (held == held[:, :1]).all()
    steps = counting.requests[1].warm_start
    assert not steps.mean[-execute:].any(), "the warm start is shifted by what was executed"
    assert steps.mean[: 8 - execute].any(axis=1).all()
    assert np.array_equal(counting.requests[1].context_actions[-1], actions[execute * repeat - 1])


@pytest.mark.parametrize("execute", [1, 2])
def test_each_frame_is_encoded_once(execute: int) -> None:
    world = Glider()
    with solver_for(world, FAST) as solver:
        controller = PlanningController(solver, ControllerConfig(execute=execute))
        drive(controller, 6)
    assert world.encoded == 1 + 6 + 1  # the goal, six frames, and the first one again to fill the window
    assert np.isfinite(controller.last_plan.cost)


def test_frames_between_two_plans_are_part_of_the_context() -> None:
    with solver_for(Glider(), FAST) as solver:
        counting = Counting(solver)
        actions, _ = drive(PlanningController(counting, ControllerConfig(execute=2)), 3)
    second = counting.requests[1]
    np.testing.assert_allclose(second.context_latents[0, 0], START + 0.1 * actions[0], atol=2e-3)
    assert np.array_equal(second.context_actions[0], actions[1])


def test_limits_hold_over_a_whole_episode() -> None:
    world = Slow()
    with solver_for(world, FAST) as solver:
        actions, _ = drive(PlanningController(solver, ControllerConfig(execute=2)), 12)
    spec = world.spec.action
    assert (actions <= spec.high).all()
    assert (actions >= spec.low).all()
    assert (np.abs(np.diff(actions, axis=0)) <= spec.max_delta + 1e-6).all()


def test_config_reaches_the_request() -> None:
    config = ControllerConfig(
        soft_time_s=5.0, horizon=4, iterations=2, samples=20, deterministic=True, want_predicted=True
    )
    with solver_for(ToyWorld(), FAST) as solver:
        controller = PlanningController(solver, config)
        drive(controller, 1)
    plan = controller.last_plan
    assert (plan.actions.shape, plan.iterations, plan.samples) == ((4, 2), 2, 20)
    assert plan.predicted.shape == (4, 1, 2)


def test_act_before_reset_is_refused() -> None:
    with solver_for(ToyWorld(), FAST) as solver, pytest.raises(InvalidInputError, match="before reset"):
        PlanningController(solver).act(Observation(render(START)[None]))


def test_more_actions_than_a_plan_has_are_refused() -> None:
    with solver_for(ToyWorld(), FAST) as solver, pytest.raises(ConfigError, match="execute 9 is over horizon 8"):
        PlanningController(solver, ControllerConfig(execute=9))
