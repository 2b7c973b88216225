"""PlanClient: plans from a server, as typed values and typed errors. Needs no torch.

with PlanClient("127.0.0.1:50051") as client:
    plan = client.plan(PlanRequest(observation, goal))
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import grpc
from grpc_health.v1 import health_pb2

from mstar_plan.errors import UnavailableError
from mstar_plan.rollout.controller_config import ControllerConfig
from mstar_plan.serving.connection import ClientConfig, Connection
from mstar_plan.serving.messages import ModelInfo, decode_model_info, encode_goal
from mstar_plan.serving.plan_messages import encode_plan_request
from mstar_plan.serving.proto.mstar.plan.v1 import planning_pb2 as pb
from mstar_plan.serving.remote_controller import RemoteController
from mstar_plan.serving.remote_session import PlanReply, PlanSession, send_plan
from mstar_plan.serving.status import error_of
from mstar_plan.types import Goal, Plan, PlanRequest

POLL_S = 0.05


@dataclass(frozen=True, eq=False)
class ServerInfo:
    """What a server is.

    Attributes:
        api_version: Package of the API.
        api_revision: Counts up with each addition to it.
        server_version: Of the mstar-plan package.
        features: What it can do beyond the least.
        models: What it serves.
        limits: {name: value} of its bounds.
    """

    api_version: str
    api_revision: int
    server_version: str
    features: tuple[str, ...]
    models: tuple[ModelInfo, ...]
    limits: dict[str, float]


class PlanClient:
    """A connection to a planning server. Thread-safe; a context manager that closes it.

    Calls raise the errors of `mstar_plan.errors`, as a solver in process would; UnavailableError if nobody answers.
    Nothing is retried: a plan for an old observation is worth nothing.

    Args:
        address: host:port, or unix:/path.
        config: How to talk.
    """

    def __init__(self, address: str, config: ClientConfig | None = None) -> None:
        self._link = Connection(address, config or ClientConfig())

    def close(self) -> None:
        """Ends the connection, and the calls on it."""
        self._link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def wait_ready(self, timeout_s: float = 30.0, *, model: str = "") -> None:
        """Waits until the server has warmed up, or one of its models.

        Raises:
            UnavailableError: It has not, in this time.
        """
        end = time.monotonic() + timeout_s
        name = f"model/{model}" if model else ""
        last = "no answer"
        while (left_s := end - time.monotonic()) > 0:
            try:
                request = health_pb2.HealthCheckRequest(service=name)
                status = self._link.health.Check(request, timeout=left_s, wait_for_ready=True).status
            except grpc.RpcError as error:
                last = str(error_of(error))
            else:
                last = health_pb2.HealthCheckResponse.ServingStatus.Name(status)
                if status == health_pb2.HealthCheckResponse.SERVING:
                    return
            time.sleep(min(POLL_S, left_s))
        what = f"{name or 'the server'} at {self._link.address} was not ready in {timeout_s:g} s ({last})"
        raise UnavailableError(f"{what}; is it started, and is the address right?")

    def server_info(self) -> ServerInfo:
        """Asks what the server is."""
        reply = self._link.call(self._link.planning.GetServerInfo, pb.GetServerInfoRequest())
        return ServerInfo(
            api_version=reply.api_version,
            api_revision=reply.api_revision,
            server_version=reply.server_version,
            features=tuple(reply.features),
            models=tuple(decode_model_info(each, self._link.limits) for each in reply.models),
            limits={field.name: value for field, value in reply.limits.ListFields()},
        )

    def list_models(self) -> tuple[ModelInfo, ...]:
        """Asks what each model takes and gives."""
        reply = self._link.call(self._link.planning.ListModels, pb.ListModelsRequest())
        return tuple(decode_model_info(each, self._link.limits) for each in reply.models)

    def plan(self, request: PlanRequest, *, model: str = "", timeout_s: float | None = None) -> Plan:
        """Plans, outside of any session.

        Args:
            request: As for a solver in process. Its `session` stays here: the server is fair between connections.
            model: Name of a model; may be left out where the server has one.
            timeout_s: Deadline of the call; the config's if None.
        """
        return self.plan_reply(request, model=model, timeout_s=timeout_s).plan

    def plan_reply(self, request: PlanRequest, *, model: str = "", timeout_s: float | None = None) -> PlanReply:
        """Plans as `plan` does, and returns all that the server says about it."""
        message = encode_plan_request(request, self._link.config.image_format, model)
        message.want_warm_start = True
        return send_plan(self._link, message, timeout_s)

    def create_session(
        self, *, model: str = "", goal: Goal | None = None, seed: int = 0, ttl_s: float | None = None
    ) -> PlanSession:
        """Opens a session: the server keeps warm start, encoded goal and context between plans.

        Args:
            model: Name of a model; may be left out where the server has one.
            goal: What is to be reached; may come later.
            seed: The noise of all its searches follows from it.
            ttl_s: Seconds without a call after which the server forgets it; the server's default if None.
        """
        message = pb.CreateSessionRequest(model=model, seed=seed, ttl_s=ttl_s)
        if goal is not None:
            message.goal.CopyFrom(encode_goal(goal, self._link.config.image_format))
        return PlanSession(self._link, self._link.call(self._link.planning.CreateSession, message))

    def controller(self, *, model: str = "", config: ControllerConfig | None = None) -> RemoteController:
        """Makes a controller that plans in a session of this server.

        Args:
            model: Name of a model; may be left out where the server has one.
            config: How plans become actions, as for the controller in process.

        Raises:
            NotFoundError: There is no such model.
            ConfigError: More actions of a plan are to be executed than it has.
        """
        models = self.list_models()
        found = [each for each in models if model in ("", each.name)]
        if len(found) != 1:
            self.create_session(model=model).close()  # the server says it better
        return RemoteController(found[0], config or ControllerConfig(), self.create_session)
