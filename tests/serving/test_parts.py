"""Planning and inference on one socket: who is ready, who is told of a failure, and what a server without models is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from inference_world import sent, toy
from serving_world import GOAL, NOW, PLANNER
from tritonclient.utils import InferenceServerException

from mstar_plan.errors import ConfigError, UnavailableError
from mstar_plan.families.world import world_servable
from mstar_plan.models.toy import ToyWorld
from mstar_plan.rollout.objective import ObjectiveConfig
from mstar_plan.rollout.plan_walk import plan_graph
from mstar_plan.rollout.solver import PlanSolver
from mstar_plan.runtime.runtime import Runtime
from mstar_plan.serving.client import PlanClient
from mstar_plan.serving.limits import ServerLimits
from mstar_plan.serving.parts import INFERENCE, PLANNING, make_parts, warm_up
from mstar_plan.serving.server import PlanningServer, ServerConfig
from mstar_plan.types import Goal, Observation, PlanRequest, PlanStatus

SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
ROW = np.array([[1.0, 2.0]], np.float32)


@pytest.fixture(scope="module")
def both() -> Iterator[PlanningServer]:
    """The toy world for plans and for its walks, under one name, and the toy walks."""
    world, walks = ToyWorld(), toy("walks")
    graph = plan_graph(world, PLANNER, ObjectiveConfig(), "world")
    servables = {"world": world_servable("world", graph, world.spec), "walks": walks.servable}
    with Runtime({"world": graph, "walks": walks.graph}) as runtime:
        solvers = {"world": PlanSolver(world.spec, runtime, PLANNER, graph="world")}
        with PlanningServer(solvers, ServerConfig(port=0), servables=servables, runtime=runtime) as server:
            yield server


def health_of(address: str, name: str) -> int:
    with grpc.insecure_channel(address) as channel:
        return health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=name), timeout=5).status


def test_plans_and_walks_are_the_same(both):
    with PlanClient(both.address) as planner, triton.InferenceServerClient(both.address) as client:
        plan = planner.plan(PlanRequest(Observation(NOW[None]), Goal(frame=GOAL), seed=3, deterministic=True))
        assert plan.status is PlanStatus.COMPLETE
        pictures = [sent("frames", NOW[None, None]), sent("goal_frames", GOAL[None, None])]
        answer = client.infer("world/plan_in_tiles", pictures, parameters={"seed": 3, "deterministic": True})
    np.testing.assert_array_equal(answer.as_numpy("plan")[0], plan.actions)
    assert answer.as_numpy("cost")[0] == pytest.approx(plan.cost)


def test_health_and_reflection_know_both(both):
    for name in ("", PLANNING.full_name, INFERENCE.full_name, "model/world", "model/walks"):
        assert health_of(both.address, name) == SERVING
    with grpc.insecure_channel(both.address) as channel:
        known = ProtoReflectionDescriptorDatabase(channel)
        assert {PLANNING.full_name, INFERENCE.full_name, "grpc.health.v1.Health"} <= set(known.get_services())
        described = known.FindFileContainingSymbol(INFERENCE.full_name)
    assert [method.name for method in described.service[0].method] == [method.name for method in INFERENCE.methods]


def test_a_model_whose_walk_fails_is_not_ready_and_others_are():
    good, bad = toy("good"), toy("bad")
    broken = replace(bad.servable, faces={"fail": bad.servable.faces["fail"]})
    with Runtime({"good": good.graph, "bad": bad.graph}) as runtime:
        servables = {"good": good.servable, "bad": broken}
        server = PlanningServer({}, ServerConfig(port=0), servables=servables, runtime=runtime)
        server.start()
        try:
            with pytest.raises(UnavailableError, match=r"bad: its warm-up failed: component 'fail' failed"):
                server.wait_ready()
            assert [health_of(server.address, f"model/{name}") for name in servables] == [SERVING, NOT_SERVING]
            with triton.InferenceServerClient(server.address) as client:
                assert not client.is_server_ready()
                assert [client.is_model_ready(name) for name in servables] == [True, False]
                assert client.infer("good", [sent("x", ROW)]).as_numpy("sum").tolist() == ROW.tolist()
                with pytest.raises(InferenceServerException, match="not ready"):
                    client.infer("bad", [sent("x", ROW)])
        finally:
            server.stop()


def test_a_name_of_two_parts_is_ready_when_both_are():
    model = toy()
    with Runtime(model.graph) as runtime:
        [part] = make_parts({}, {"toy": model.servable}, runtime, ServerLimits(), reply_margin_s=0.01)
        assert not part.ready("toy")
        assert part.ready("somebody else")
        assert [name for _, name in warm_up([part], 10)] == ["toy"]
        assert part.ready("toy")


def test_families_need_their_runtime():
    model = toy()
    with pytest.raises(ConfigError, match="give it their runtime"):
        PlanningServer({}, servables={"toy": model.servable})
    with Runtime(model.graph) as runtime, pytest.raises(ConfigError, match="no graph 'tow'"):
        PlanningServer({}, servables={"tow": model.servable}, runtime=runtime)


def test_without_families_there_is_no_inference(server):
    with triton.InferenceServerClient(server.address) as client, pytest.raises(InferenceServerException) as caught:
        client.is_server_live()
    assert caught.value.status() == "StatusCode.UNIMPLEMENTED"
