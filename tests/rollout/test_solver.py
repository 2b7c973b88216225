"""The whole of planning on the toy world, through the real runtime: the best plan is known in closed form."""

import threading
import time
from concurrent.futures import CancelledError

import numpy as np
import pytest
import torch
from planning_worlds import Broken, Glider, Proprioceptive, Slow, request, solver_for

from mstar_plan.errors import ComponentError, DeadlineError, InvalidInputError, LimitExceededError
from mstar_plan.models.toy import ToyWorld, best_plan, render
from mstar_plan.rollout.cem import CEMConfig
from mstar_plan.rollout.constraints import worst_violation
from mstar_plan.rollout.icem import ICEMConfig
from mstar_plan.rollout.limits import PlanLimits
from mstar_plan.rollout.mppi import MPPIConfig
from mstar_plan.rollout.objective import ObjectiveConfig
from mstar_plan.rollout.planner import PlannerConfig
from mstar_plan.rollout.random_shooting import RandomShootingConfig
from mstar_plan.rollout.warm_start import shift
from mstar_plan.types import Goal, Observation, Plan, PlanRequest, PlanStatus

START, GOAL = (-0.3, 0.2), (0.4, -0.4)
FAST = CEMConfig(samples=24, iterations=3, horizon=6, elites=6, carry=3)
PLANNERS = [CEMConfig(), ICEMConfig(), MPPIConfig(), RandomShootingConfig()]


def true_cost(actions: np.ndarray, eps: float = 1e-4) -> float:
    places = np.array(START) + 0.1 * np.cumsum(actions.astype(np.float64), 0)
    return float(np.sqrt(((places - np.array(GOAL)) ** 2).sum(1) + eps).mean())


@pytest.mark.parametrize("planner", PLANNERS, ids=lambda p: p.planner)
def test_the_plan_comes_near_the_best_that_there_is(planner: PlannerConfig) -> None:
    with solver_for(ToyWorld(), planner) as solver:
        plan = solver.solve(request(START, GOAL, seed=1).but(iterations=12, samples=192))
    best, still = true_cost(best_plan(START, GOAL, 12)), true_cost(np.zeros((12, 2)))
    assert true_cost(plan.actions) == pytest.approx(plan.cost, abs=3e-3)
    assert best <= plan.cost + 1e-3
    gap = {"cem": 0.04, "icem": 0.1, "mppi": 0.12, "random_shooting": 0.6}[planner.planner]
    assert plan.cost < best + gap * (still - best)
    assert (plan.status, plan.iterations, plan.samples) == (PlanStatus.COMPLETE, 12, 192)
    assert list(plan.cost_history) == sorted(plan.cost_history, reverse=True)
    assert plan.cost_history[-1] == pytest.approx(plan.cost)


@pytest.mark.parametrize("planner", PLANNERS, ids=lambda p: p.planner)
@pytest.mark.parametrize("deterministic", [False, True])
def test_a_request_alone_equals_the_same_beside_seven_others(planner: PlannerConfig, deterministic: bool) -> None:
    others = [request((0.1 * i, -0.1), (-0.2, 0.05 * i), seed=i).but(deterministic=deterministic) for i in range(7)]
    mine = request(START, GOAL, seed=99).but(deterministic=deterministic)
    with solver_for(ToyWorld(), planner) as solver:
        alone = solver.solve(mine)
        futures = [solver.submit(r) for r in (*others[:4], mine, *others[4:])]
        beside = futures[4].result()
        plans = [f.result() for f in futures]
    if deterministic:
        assert [same_bytes(alone, beside), beside.timing.batch_size] == [True, 1]
    else:
        np.testing.assert_allclose(beside.actions, alone.actions, rtol=1e-5, atol=1e-5)
        assert beside.cost == pytest.approx(alone.cost, rel=1e-5)
        assert max(p.timing.batch_size for p in plans) > 1, "nothing was joined, so nothing was shown"
    assert not np.array_equal(plans[0].actions, beside.actions)


def same_bytes(a: Plan, b: Plan) -> bool:
    pairs = [(a.actions, b.actions), (a.std, b.std), (a.warm_start.mean, b.warm_start.mean)]
    pairs.append((a.warm_start.elites, b.warm_start.elites))
    return all(x.tobytes() == y.tobytes() for x, y in pairs) and a.cost == b.cost


def test_tiles_give_the_same_plan_to_rounding() -> None:
    for samples in (24, 32, 70):  # less than a tile, one, and some with padding
        asked = request().but(samples=samples)
        with solver_for(ToyWorld(), FAST) as solver:
            free, tiled = solver.solve(asked), solver.solve(asked.but(deterministic=True))
        np.testing.assert_allclose(tiled.actions, free.actions, rtol=1e-4, atol=1e-4)


def test_the_seed_decides_and_nothing_else() -> None:
    with solver_for(ToyWorld(), FAST) as solver:
        first, again, other = (solver.solve(request(seed=s)) for s in (1, 1, 2))
    assert same_bytes(first, again)
    assert not np.array_equal(first.actions, other.actions)
    assert (first.seed, other.seed) == (1, 2)


def test_goal_image_and_goal_latent_give_the_same_plan() -> None:
    with solver_for(ToyWorld(), FAST) as solver:
        image = request()
        latent = solver.encode(image.goal.frame)
        assert latent.shape == (1, 2)
        assert latent.dtype == np.float32
        to_image, to_latent = solver.solve(image), solver.solve(image.but(goal=Goal(latent=latent)))
    np.testing.assert_allclose(to_latent.actions, to_image.actions, atol=1e-5)


def test_predicted_latents_are_where_the_plan_leads() -> None:
    for deterministic in (False, True):
        with solver_for(ToyWorld(), FAST) as solver:
            plan = solver.solve(request(START, GOAL).but(want_predicted=True, deterministic=deterministic))
        places = np.array(START) + 0.1 * np.cumsum(plan.actions, 0)
        assert plan.predicted.shape == (6, 1, 2)
        np.testing.assert_allclose(plan.predicted[:, 0], places, atol=2e-3)


class Slowed(ToyWorld):
    """Takes its time over every prediction."""

    def predict(self, latent, state, action, cache):
        time.sleep(0.002)
        return super().predict(latent, state, action, cache)


def test_a_soft_budget_returns_the_best_so_far() -> None:
    with solver_for(Slowed(), FAST) as solver:
        solver.solve(request())
        began = time.monotonic()
        plan = solver.solve(request().but(iterations=90, soft_time_s=0.1))
        took = time.monotonic() - began
        whole = solver.solve(request().but(iterations=plan.iterations))
    assert plan.status is PlanStatus.BUDGET_EXHAUSTED
    assert 1 <= plan.iterations < 90
    assert len(plan.cost_history) == plan.iterations
    assert took < 0.5
    assert same_bytes(plan, whole), "a search that was ended must equal one that was asked to end there"


def test_convergence_ends_the_search() -> None:
    planner = CEMConfig(tolerance=0.03, std_floor=0.02, samples=128)
    with solver_for(ToyWorld(), planner) as solver:
        plan = solver.solve(request().but(iterations=60))
    assert plan.status is PlanStatus.CONVERGED
    assert plan.iterations < 60
    assert plan.std.max() <= 0.03


def test_a_warm_start_begins_where_the_last_search_ended() -> None:
    with solver_for(ToyWorld(), FAST) as solver:
        cold = solver.solve(request(START, GOAL, seed=1))
        moved = tuple(np.array(START) + 0.1 * cold.actions[0])
        asked = request(moved, GOAL, seed=2).but(iterations=1)
        warm = solver.solve(asked.but(warm_start=shift(cold.warm_start, 1)))
        anew = solver.solve(asked)
    assert warm.cost < anew.cost
    assert warm.warm_start.elites.shape == (3, 6, 2)


def test_rate_limits_hold_from_the_last_action_on() -> None:
    world = Slow()
    last = np.array([[-0.4, 0.9]], np.float32)
    with solver_for(world, FAST) as solver:
        for deterministic in (False, True):
            plan = solver.solve(request().but(context_actions=last, deterministic=deterministic))
            assert worst_violation(plan.actions, world.spec.action, last[0]) == ""
    assert np.abs(plan.actions[0] - last[0]).max() > 0.05, "the limit is not a standstill"


def test_two_frames_show_a_movement_that_one_cannot() -> None:
    frames = np.stack([render([-0.3, 0.0]), render([-0.1, 0.0])])
    for deterministic in (False, True):
        asked = PlanRequest(
            Observation(frames), Goal(frame=render([0.1, 0.0])), context_actions=np.array([[0.7, 0.0]]),
            want_predicted=True, deterministic=deterministic,
        )  # fmt: skip
        world = Glider()
        with solver_for(world, FAST) as solver:
            plan = solver.solve(asked)
        first = -0.1 + 0.5 * 0.2 + 0.1 * plan.actions[0, 0]
        assert plan.predicted[0, 0, 0] == pytest.approx(first, abs=2e-3)
        torch.testing.assert_close(world.seen_actions, torch.tensor([[[0.7, 0.0]]]))
        np.testing.assert_allclose(plan.latent, [[-0.1, 0.0]], atol=2e-3)


def test_proprioception_reaches_the_model() -> None:
    felt = PlanRequest(Observation(render([0.0, 0.0])[None], state=[0.3, -0.2]), Goal(frame=render([0.0, 0.0])))
    with solver_for(Proprioceptive(), FAST) as solver:
        plan = solver.solve(felt)
    assert plan.actions[0, 0] < 0 < plan.actions[0, 1]


def test_one_good_candidate_is_enough() -> None:
    with solver_for(Broken(first_bad=8), FAST) as solver:
        plan = solver.solve(request())
    assert np.isfinite(plan.cost)


def test_a_model_that_gives_nothing_finite_is_at_fault_alone() -> None:
    with solver_for(Broken(), FAST) as solver:
        futures = [solver.submit(request(seed=i)) for i in range(3)]
        for future in futures:
            with pytest.raises(ComponentError, match="none of 24 candidates") as error:
                future.result()
            assert error.value.details["cause"] == "NON_FINITE_COST"


@pytest.mark.parametrize("field", ["horizon", "iterations", "samples", "soft_time_s"])
def test_over_the_limit_is_refused_at_once(field: str) -> None:
    limits = PlanLimits(max_horizon=10, max_iterations=10, max_samples=50, max_soft_time_s=10.0)
    with solver_for(ToyWorld(), FAST, limits=limits) as solver, pytest.raises(LimitExceededError) as error:
        solver.submit(request().but(**{field: 51}))
    assert error.value.field == field


def test_an_image_of_another_size_is_refused_with_the_cure() -> None:
    with solver_for(ToyWorld(), FAST) as solver:
        with pytest.raises(InvalidInputError, match="crop and resize the camera image to 64x64"):
            solver.submit(request().but(observation=Observation(np.zeros((1, 32, 32, 3), np.uint8))))
        with pytest.raises(InvalidInputError, match="frame is 32x32"):
            solver.encode(np.zeros((32, 32, 3), np.uint8))
        with pytest.raises(InvalidInputError, match="dtype float32"):
            solver.encode(np.zeros((64, 64, 3), np.float32))


def test_a_black_image_is_the_callers_fault_and_no_one_elses() -> None:
    black = request().but(observation=Observation(np.zeros((1, 64, 64, 3), np.uint8)))
    with solver_for(ToyWorld(), FAST) as solver:
        bad, good = solver.submit(black), solver.submit(request())
        with pytest.raises(InvalidInputError, match="black"):
            bad.result()
        assert good.result().status is PlanStatus.COMPLETE


class Gate(ToyWorld):
    """Stands still in its first prediction until it is opened."""

    def __init__(self) -> None:
        super().__init__("gate")
        self.reached, self.opened = threading.Event(), threading.Event()

    def predict(self, latent, state, action, cache):
        self.reached.set()
        assert self.opened.wait(10)
        return super().predict(latent, state, action, cache)


def test_cancelling_the_future_takes_the_request_back() -> None:
    gate = Gate()
    with solver_for(gate, FAST) as solver:
        future = solver.submit(request())
        assert gate.reached.wait(10)
        assert future.cancel()
        gate.opened.set()
        with pytest.raises(CancelledError):
            future.result()
        assert solver.solve(request()).status is PlanStatus.COMPLETE


def test_a_deadline_that_passes_is_an_error() -> None:
    gate = Gate()
    with solver_for(gate, FAST) as solver:
        future = solver.submit(request(), deadline_s=0.05)
        assert gate.reached.wait(10)
        time.sleep(0.1)
        gate.opened.set()
        with pytest.raises(DeadlineError):
            future.result()


def test_objectives_change_the_plan() -> None:
    with solver_for(ToyWorld(), FAST) as solver:
        free = solver.solve(request(START, GOAL))
    with solver_for(ToyWorld(), FAST, ObjectiveConfig(action=10.0)) as solver:
        lazy = solver.solve(request(START, GOAL))
    assert np.square(lazy.actions).mean() < 0.2 * np.square(free.actions).mean()
