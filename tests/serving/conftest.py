"""A real server over a real socket, planning with the toy world whose best plan is known."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import grpc
import pytest
from serving_world import GOAL, LIMITS, NOW, PLANNER

from mstar_plan.models.toy import ToyWorld
from mstar_plan.rollout.objective import ObjectiveConfig
from mstar_plan.rollout.plan_walk import plan_graph
from mstar_plan.rollout.solver import PlanSolver
from mstar_plan.runtime.runtime import Runtime
from mstar_plan.serving.client import PlanClient
from mstar_plan.serving.codec import encode_image
from mstar_plan.serving.limits import ServerLimits
from mstar_plan.serving.proto.mstar.plan.v1 import planning_pb2 as pb
from mstar_plan.serving.proto.mstar.plan.v1 import planning_pb2_grpc
from mstar_plan.serving.server import PlanningServer, ServerConfig


@pytest.fixture(scope="session")
def solver() -> Iterator[PlanSolver]:
    """A solver over the toy world."""
    model = ToyWorld()
    with Runtime(plan_graph(model, PLANNER, ObjectiveConfig())) as runtime:
        yield PlanSolver(model.spec, runtime, PLANNER, limits=LIMITS)


@pytest.fixture(scope="session")
def server(solver: PlanSolver) -> Iterator[PlanningServer]:
    """A server that many tests share; none may leave it broken."""
    with PlanningServer({"toy": solver}, ServerConfig(port=0)) as started:
        yield started


@pytest.fixture
def client(server: PlanningServer) -> Iterator[PlanClient]:
    """A client of the shared server."""
    with PlanClient(server.address) as connected:
        yield connected


@pytest.fixture
def stub(server: PlanningServer) -> Iterator[planning_pb2_grpc.PlanningServiceStub]:
    """The bare stub, for messages that the client would never send."""
    with grpc.insecure_channel(server.address, options=(("grpc.max_send_message_length", -1),)) as channel:
        yield planning_pb2_grpc.PlanningServiceStub(channel)


@pytest.fixture
def serve(solver: PlanSolver) -> Iterator[Callable[..., PlanningServer]]:
    """Starts a server of its own: serve(limits=ServerLimits(...))."""
    with ExitStack() as stack:

        def start(limits: ServerLimits | None = None, **options: Any) -> PlanningServer:
            config = ServerConfig(port=0, limits=limits or ServerLimits(), **options)
            return stack.enter_context(PlanningServer({"toy": solver}, config))

        yield start


@pytest.fixture
def message() -> pb.PlanRequest:
    """A good plan request, for tests to damage."""
    return pb.PlanRequest(
        model="toy",
        observation=pb.Observation(images=[encode_image(NOW)]),
        goal=pb.Goal(image=encode_image(GOAL)),
        seed=1,
    )
