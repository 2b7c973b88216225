"""The server: health, reflection, addresses that are refused, a graceful end, and nothing dangerous in its code."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from planning_worlds import Broken
from serving_world import GOAL, NOW, PLANNER

from mstar_plan.errors import ConfigError, InvalidInputError, OverloadedError, SessionExpiredError, UnavailableError
from mstar_plan.rollout.objective import ObjectiveConfig
from mstar_plan.rollout.plan_walk import plan_graph
from mstar_plan.rollout.solver import PlanSolver
from mstar_plan.runtime.runtime import Runtime
from mstar_plan.serving.client import PlanClient
from mstar_plan.serving.limits import ServerLimits
from mstar_plan.serving.server import PlanningServer, ServerConfig
from mstar_plan.types import Goal, Observation, PlanRequest, PlanStatus

SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
REQUEST = PlanRequest(Observation(NOW[None]), Goal(frame=GOAL))
SERVICE = "mstar.plan.v1.PlanningService"


def health_of(address: str, name: str) -> int:
    with grpc.insecure_channel(address) as channel:
        return health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=name), timeout=5).status


@pytest.mark.parametrize("name", ["", SERVICE, "model/toy"])
def test_health(server, name):
    assert health_of(server.address, name) == SERVING


def test_not_serving_before_the_warm_up(solver):
    class Held:
        """The solver, whose first plan waits."""

        def __init__(self) -> None:
            self.go = threading.Event()

        def __getattr__(self, name):
            return getattr(solver, name)

        def submit(self, request, *, deadline_s=None):
            self.go.wait(10)
            return solver.submit(request, deadline_s=deadline_s)

    held = Held()
    server = PlanningServer({"toy": held}, ServerConfig(port=0))
    server.start()
    try:
        assert health_of(server.address, "model/toy") == NOT_SERVING
        with PlanClient(server.address) as client, pytest.raises(UnavailableError, match="warming up"):
            client.plan(REQUEST)
        held.go.set()
        server.wait_ready()
        assert health_of(server.address, "model/toy") == SERVING
    finally:
        server.stop()


def test_a_model_that_cannot_plan_does_not_serve_and_others_do(solver):
    model = Broken()
    with Runtime(plan_graph(model, PLANNER, ObjectiveConfig())) as runtime:
        broken = PlanSolver(model.spec, runtime, PLANNER)
        server = PlanningServer({"toy": solver, "broken": broken}, ServerConfig(port=0))
        server.start()
        try:
            with pytest.raises(UnavailableError, match="broken"):
                server.wait_ready()
            assert health_of(server.address, "model/broken") == NOT_SERVING
            with PlanClient(server.address) as client:
                with pytest.raises(InvalidInputError, match="say which"):
                    client.plan(REQUEST)
                assert client.plan(REQUEST, model="toy").status is PlanStatus.COMPLETE
        finally:
            server.stop()


def test_reflection(server):
    with grpc.insecure_channel(server.address) as channel:
        names = set(ProtoReflectionDescriptorDatabase(channel).get_services())
    assert {SERVICE, "grpc.health.v1.Health"} <= names


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.7", "::", "robot.example"])
def test_other_machines_are_kept_out(host):
    with pytest.raises(ConfigError, match="insecure"):
        ServerConfig(host=host)
    assert ServerConfig(host=host, insecure=True).insecure


@pytest.mark.parametrize("changes", [{"port": -1}, {"port": 70_000}, {"grace_s": 0}, {"reply_margin_s": 0.001}])
def test_a_config_checks_itself(changes):
    with pytest.raises(ConfigError):
        ServerConfig(**changes)


def test_unix_socket(solver, tmp_path: Path):
    with (
        PlanningServer({"toy": solver}, ServerConfig(host=f"unix:{tmp_path}/s")) as server,
        PlanClient(server.address) as client,
    ):
        assert client.plan(REQUEST).status is PlanStatus.COMPLETE


def test_a_port_that_is_taken(server, solver):
    port = int(server.address.rpartition(":")[2])
    with pytest.raises(UnavailableError, match="taken"):
        PlanningServer({"toy": solver}, ServerConfig(port=port)).start()


def test_no_model():
    with pytest.raises(ConfigError, match="at least one"):
        PlanningServer({})


def test_stopping_lets_plans_end(serve):
    server = serve()
    with PlanClient(server.address) as client:
        plans = []
        running = threading.Thread(
            target=lambda: plans.append(client.plan(REQUEST.but(iterations=10_000, soft_time_s=0.5)))
        )
        running.start()
        time.sleep(0.15)
        server.stop()
        running.join(5)
        assert plans[0].status is PlanStatus.BUDGET_EXHAUSTED
        with pytest.raises(UnavailableError):
            client.plan(REQUEST, timeout_s=1)


def test_as_many_plans_as_allowed(serve):
    server = serve(ServerLimits(max_concurrent_plans=1))
    with PlanClient(server.address) as client:
        running = threading.Thread(target=lambda: client.plan(REQUEST.but(iterations=10_000, soft_time_s=0.5)))
        running.start()
        time.sleep(0.15)
        with pytest.raises(OverloadedError, match="max_concurrent_plans") as caught:
            client.plan(REQUEST)
        assert caught.value.retry_after_s > 0
        running.join()
        assert client.plan(REQUEST).status is PlanStatus.COMPLETE


def test_as_many_sessions_as_allowed_and_their_end(serve):
    server = serve(ServerLimits(max_sessions=1))
    with PlanClient(server.address) as client:
        session = client.create_session(goal=Goal(frame=GOAL), ttl_s=0.2)
        with pytest.raises(OverloadedError, match="max_sessions"):
            client.create_session()
        time.sleep(0.3)
        with pytest.raises(SessionExpiredError, match=r"expired after 0\.2 s"):
            session.plan(Observation(NOW[None]))
        client.create_session().close()


def test_nothing_dangerous_is_in_the_code_of_the_wire():
    room = Path(__file__).parents[2] / "mstar_plan" / "serving"
    forbidden = re.compile(
        r"\b(pickle|cloudpickle|marshal|shelve|allow_pickle)\b|\b(eval|exec|__import__)\(|torch\.load"
    )
    for path in room.rglob("*.py"):
        if "proto" not in path.parts:
            assert not forbidden.search(path.read_text()), path
