"""A session's memory: moved on by what was executed, copied for each plan, gone at a reset."""

from __future__ import annotations

import numpy as np
import pytest
from serving_world import GOAL, NOW

from mstar_plan.errors import CancelledError, InvalidInputError
from mstar_plan.rollout.warm_start import shift
from mstar_plan.serving.session import Executed, Session
from mstar_plan.types import Goal, Observation

NOTHING = Executed()


def seen(seq: int) -> Observation:
    return Observation(NOW[None], seq=seq)


@pytest.fixture
def session(solver):
    return Session("id", "toy", solver, ttl_s=10, seed=3, goal=Goal(latent=solver.encode(GOAL)))


@pytest.fixture
def plan_once(session, solver):
    def plan(seq, executed=NOTHING, horizon=6):
        start = session.begin(seen(seq), executed, horizon)
        found = solver.solve(start.request)
        session.finish(start, found)
        return start, found

    return plan


def test_the_first_plan_starts_cold(session):
    assert session.begin(seen(0), NOTHING, 6).request.warm_start is None


@pytest.mark.parametrize("steps", [1, 3])
def test_the_warm_start_moves_by_executed_steps(plan_once, session, solver, steps):
    _, found = plan_once(0)
    warm = session.begin(seen(steps), NOTHING, 6).request.warm_start
    expected = shift(found.warm_start, steps, solver.spec.action)
    np.testing.assert_array_equal(warm.mean, expected.mean)
    np.testing.assert_array_equal(warm.elites, expected.elites)


def test_the_robot_knows_better_how_many(plan_once, session, solver):
    _, found = plan_once(0)
    warm = session.begin(seen(50), Executed(actions=found.actions[:2]), 6).request.warm_start
    np.testing.assert_array_equal(warm.mean, shift(found.warm_start, 2, solver.spec.action).mean)


def test_the_same_step_again_is_not_moved(plan_once, session):
    _, found = plan_once(4)
    warm = session.begin(seen(4), NOTHING, 6).request.warm_start
    np.testing.assert_array_equal(warm.mean, found.warm_start.mean)


@pytest.mark.parametrize("horizon", [3, 9])
def test_another_horizon_cuts_or_pads(plan_once, session, horizon):
    _, found = plan_once(0)
    warm = session.begin(seen(0), NOTHING, horizon).request.warm_start
    assert warm.mean.shape == (horizon, 2)
    np.testing.assert_array_equal(warm.mean[:3], found.warm_start.mean[:3])
    assert (warm.mean[6:] == 0).all()


def test_each_plan_has_noise_of_its_own(plan_once, session):
    first, _ = plan_once(0)
    assert session.begin(seen(1), NOTHING, 6).request.seed != first.request.seed


def test_an_old_plan_does_not_overwrite_a_newer_one(session, solver):
    old, new = session.begin(seen(1), NOTHING, 6), session.begin(seen(2), NOTHING, 6)
    newer = solver.solve(new.request)
    session.finish(new, newer)
    session.finish(old, solver.solve(old.request))
    warm = session.begin(seen(2), NOTHING, 6).request.warm_start
    np.testing.assert_array_equal(warm.mean, newer.warm_start.mean)


def test_a_reset_forgets_and_ends_plans_under_way(session, solver):
    start = session.begin(seen(0), NOTHING, 6)
    session.reset(None, None)
    with pytest.raises(CancelledError, match="reset"):
        session.finish(start, solver.solve(start.request))
    assert session.begin(seen(0), NOTHING, 6).request.warm_start is None
    with pytest.raises(InvalidInputError, match="in epoch 1"):
        session.begin(seen(0), NOTHING, 6, epoch=0)


@pytest.mark.parametrize(
    ("observation", "executed", "words"),
    [
        (seen(1), NOTHING, "planned from 5"),
        (seen(6), Executed(actions=np.zeros((1, 3), np.float32)), "executed_actions"),
        (seen(6), Executed(2, np.zeros((1, 2), np.float32)), "executed_actions"),
        (Observation(np.stack([NOW] * 3), seq=6), NOTHING, "3 images for 1"),
    ],
)
def test_contradictions(plan_once, session, observation, executed, words):
    plan_once(5)
    with pytest.raises(InvalidInputError, match=words):
        session.begin(observation, executed, 6)
