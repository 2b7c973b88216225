"""The client: the same plans as in process, typed errors, isolated sessions, budgets and cancellation."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from serving_world import GOAL, NOW, PLANNER

from mstar_plan.errors import (
    CancelledError,
    DeadlineError,
    InvalidInputError,
    LimitExceededError,
    NotFoundError,
    SessionExpiredError,
    UnavailableError,
)
from mstar_plan.models.toy import best_plan, render
from mstar_plan.rollout.controller import PlanningController
from mstar_plan.rollout.controller_config import ControllerConfig
from mstar_plan.serving.client import PlanClient
from mstar_plan.serving.connection import ClientConfig
from mstar_plan.types import Controller, Goal, Observation, PlanRequest, PlanStatus

REQUEST = PlanRequest(Observation(NOW[None], seq=7), Goal(frame=GOAL), seed=3)


def test_a_plan_is_the_one_that_the_solver_makes(client, solver):
    here, there = solver.solve(REQUEST), client.plan(REQUEST)
    np.testing.assert_array_equal(there.actions, here.actions)
    np.testing.assert_allclose(there.cost, here.cost, rtol=1e-6)
    np.testing.assert_array_equal(there.warm_start.elites, here.warm_start.elites)
    assert (there.status, there.iterations, there.samples) == (PlanStatus.COMPLETE, 3, 48)
    assert (there.observation_seq, there.seed, there.dt_s) == (7, 3, pytest.approx(0.1))
    assert len(there.cost_history) == 3
    assert there.timing.total_ms > 0


def test_the_plan_is_good(client):
    request = REQUEST.but(samples=256, iterations=20)
    start, goal = np.array([-0.3, 0.1]), np.array([0.2, -0.2])
    best = best_plan(start, goal, PLANNER.horizon)
    reached = start + 0.1 * client.plan(request).actions.sum(0)
    assert np.linalg.norm(reached - goal) < np.linalg.norm(start + 0.1 * best.sum(0) - goal) + 0.05


@pytest.mark.parametrize("form", ["png", "jpeg"])
def test_image_forms(server, solver, form):
    with PlanClient(server.address, ClientConfig(image_format=form)) as other:
        plan = other.plan(REQUEST)
    if form == "png":
        np.testing.assert_array_equal(plan.actions, solver.solve(REQUEST).actions)
    assert plan.status is PlanStatus.COMPLETE


def test_predicted_and_deterministic(client, solver):
    request = REQUEST.but(want_predicted=True, deterministic=True)
    plan = client.plan(request)
    assert plan.predicted.shape == (6, 1, 2)
    assert plan.actions.tobytes() == solver.solve(request).actions.tobytes()


def test_what_the_server_says_of_itself(client):
    info = client.server_info()
    assert info.api_version == "mstar.plan.v1"
    assert {"sessions", "soft_time", "warm_start"} <= set(info.features)
    assert info.limits["max_message_bytes"] == 16 * 2**20
    (model,) = client.list_models()
    assert (model.name, model.image_size, model.horizon, model.ready) == ("toy", (64, 64), 6, True)
    np.testing.assert_array_equal(model.action.low, [-1, -1])


@pytest.mark.parametrize(
    ("call", "kind", "field"),
    [
        (lambda c: c.plan(REQUEST.but(horizon=13)), LimitExceededError, "horizon"),
        (lambda c: c.plan(REQUEST, model="tou"), NotFoundError, "model"),
        (lambda c: c.plan(REQUEST.but(goal=Goal(state=np.zeros(2)))), InvalidInputError, "goal.state"),
        (lambda c: c.create_session(ttl_s=-1.0), InvalidInputError, "ttl_s"),
        (lambda c: c.create_session(ttl_s=1e6), LimitExceededError, "ttl_s"),
        (lambda c: c.controller(model="tou"), NotFoundError, "model"),
    ],
)
def test_errors_come_back_as_themselves(client, call, kind, field):
    with pytest.raises(kind) as caught:
        call(client)
    assert type(caught.value) is kind
    assert caught.value.field == field


def test_nobody_there():
    with PlanClient("127.0.0.1:1") as nobody:
        with pytest.raises(UnavailableError):
            nobody.plan(REQUEST, timeout_s=2)
        with pytest.raises(UnavailableError, match="was not ready"):
            nobody.wait_ready(0.3)


def test_a_soft_budget_gives_the_best_so_far(client):
    reply = client.plan_reply(REQUEST.but(iterations=10_000, soft_time_s=0.05))
    assert reply.plan.status is PlanStatus.BUDGET_EXHAUSTED
    assert 1 <= reply.plan.iterations < 10_000
    assert reply.budget_source == "request"
    assert "50.0 ms from the request" in reply.plan.message
    assert reply.round_trip_ms < 1000


def test_the_deadline_of_the_call_is_a_budget_too(serve):
    server = serve(reply_margin_s=0.2)  # generous: a busy machine must not fail this
    with PlanClient(server.address) as client:
        reply = client.plan_reply(REQUEST.but(iterations=10_000), timeout_s=0.5)
    assert reply.plan.status is PlanStatus.BUDGET_EXHAUSTED
    assert reply.budget_source == "deadline"
    assert reply.soft_time_s == pytest.approx(0.3, abs=0.05)


def test_no_time_at_all_is_an_error(client):
    with pytest.raises(DeadlineError):
        client.plan(REQUEST, timeout_s=0.004)


def test_a_client_that_goes_frees_the_server(server, client):
    with PlanClient(server.address) as other:
        begun = threading.Event()

        def long() -> None:
            begun.set()
            other.plan(REQUEST.but(iterations=10_000, soft_time_s=5.0))

        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(long)
            begun.wait()
            time.sleep(0.1)
            other.close()
            with pytest.raises(CancelledError):
                running.result(5)
    start = time.perf_counter()
    assert client.plan(REQUEST).timing.batch_size == 1
    assert time.perf_counter() - start < 2


def test_sessions_are_isolated(client):
    goals = [Goal(frame=GOAL), Goal(frame=render(np.array([-0.8, 0.7])))]

    def drive(session, steps=3):
        return [session.plan(Observation(NOW[None], seq=i), deterministic=True).actions.tobytes() for i in range(steps)]

    alone = []
    for i, goal in enumerate(goals):
        with client.create_session(goal=goal, seed=i) as session:
            alone.append(drive(session))
    sessions = [client.create_session(goal=goal, seed=i) for i, goal in enumerate(goals)]
    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(drive, sessions))
    assert together == alone
    assert alone[0] != alone[1]
    for session in sessions:
        session.close()


def test_a_session_starts_warm_and_forgets_at_reset(client):
    with client.create_session(goal=Goal(frame=GOAL), seed=1) as session:
        first = session.plan(Observation(NOW[None], seq=0), iterations=1, samples=32)
        cold = session.plan(Observation(NOW[None], seq=1), iterations=1, samples=32, warm_start=False)
        warm = session.plan(Observation(NOW[None], seq=1), iterations=1, samples=32)
        assert warm.cost <= cold.cost
        session.reset()
        again = session.plan(Observation(NOW[None], seq=0), iterations=1, samples=32)
        np.testing.assert_array_equal(again.actions, first.actions)
        assert session.last_reply.session_epoch == session.epoch == 1


def test_goal_of_a_session(client):
    session = client.create_session()
    with pytest.raises(InvalidInputError, match="goal is missing"):
        session.plan(Observation(NOW[None]))
    session.update_goal(Goal(frame=GOAL))
    assert session.plan(Observation(NOW[None])).status is PlanStatus.COMPLETE
    session.close()
    with pytest.raises(SessionExpiredError, match="was closed"):
        session.plan(Observation(NOW[None]))


def test_observations_never_go_back(client):
    with client.create_session(goal=Goal(frame=GOAL)) as session:
        session.plan(Observation(NOW[None], seq=5))
        with pytest.raises(InvalidInputError, match="planned from 5"):
            session.plan(Observation(NOW[None], seq=4))
        session.plan(Observation(NOW[None], seq=6))


@pytest.mark.parametrize("config", [ControllerConfig(), ControllerConfig(execute=2, action_repeat=2)])
def test_the_controller_acts_as_the_one_in_process(client, solver, config):
    config = replace(config, deterministic=True)
    place = np.array([-0.3, 0.1])
    here, there = PlanningController(solver, config), client.controller(config=config)
    assert isinstance(there, Controller)
    for controller in (here, there):
        controller.reset(Goal(frame=GOAL), seed=4)
    for seq in range(8):
        observation = Observation(render(place)[None], seq=seq)
        action = here.act(observation)
        np.testing.assert_array_equal(there.act(observation), action)
        place = place + 0.1 * action
    if config.execute == 1:
        np.testing.assert_allclose(place, [0.2, -0.2], atol=0.1)
    there.close()


def test_the_controller_makes_a_lost_session_anew(client, caplog):
    controller = client.controller()
    controller.reset(Goal(frame=GOAL), seed=4)
    controller.act(Observation(NOW[None], seq=0))
    controller._session.close()
    assert controller.act(Observation(NOW[None], seq=1)).shape == (2,)
    assert "new session" in caplog.text
    controller.close()


def test_act_before_reset(client):
    with pytest.raises(InvalidInputError, match="before reset"):
        client.controller().act(Observation(NOW[None]))


def test_eight_robots_share_batches(client):
    plans = []
    with ThreadPoolExecutor(8) as pool:
        for _ in range(3):
            plans += pool.map(lambda i: client.plan(REQUEST.but(seed=i, iterations=20)), range(8))
    assert max(plan.timing.batch_size for plan in plans) > 1
    alone = client.plan(REQUEST.but(seed=5, iterations=20))
    np.testing.assert_allclose(plans[5].cost, alone.cost, rtol=1e-4)


def test_the_client_needs_no_torch():
    names = "('torch', 'mujoco', 'omegaconf')"
    code = f"import sys, mstar_plan.serving.client; print([m for m in {names} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
