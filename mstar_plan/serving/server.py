"""PlanningServer: the socket, its threads, health, reflection, warm-up and a graceful end."""

from __future__ import annotations

import ipaddress
import logging
import queue
import signal
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import FrameType, TracebackType
from typing import Any, Self

import grpc
import numpy as np
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from mstar_plan.errors import ConfigError, MStarError, UnavailableError
from mstar_plan.rollout.episode import Episode
from mstar_plan.rollout.solver import PlanSolver
from mstar_plan.serving.dispatch import handler_of
from mstar_plan.serving.limits import ServerLimits
from mstar_plan.serving.planning_service import PlanningService
from mstar_plan.serving.proto.mstar.plan.v1 import planning_pb2 as pb
from mstar_plan.serving.served_models import ServedModels
from mstar_plan.types import Goal, Observation

log = logging.getLogger(__name__)

SERVICE = pb.DESCRIPTOR.services_by_name["PlanningService"]
GREY = 127  # of the picture that models are warmed up with


@dataclass(frozen=True)
class ServerConfig:
    """Where and how a server listens.

    Attributes:
        host: Address to listen at, or `unix:/path` for a socket on this machine. Without TLS, which is not offered yet,
            one that other machines reach is refused unless `insecure` is set.
        port: 0 takes a free one.
        insecure: Listen without TLS where other machines can connect and read along.
        reply_margin_s: Seconds before a call's deadline at which its search ends, so that the reply comes in time.
        grace_s: Seconds that calls in flight are given to end when the server stops.
        warm_up_timeout_s: Seconds that the first plan of a model may take.
        reflection: Let clients ask for the description of the API.
        limits: What is taken at most.
    """

    host: str = "127.0.0.1"
    port: int = 50051
    insecure: bool = False
    reply_margin_s: float = 0.005
    grace_s: float = 5.0
    warm_up_timeout_s: float = 60.0
    reflection: bool = True
    limits: ServerLimits = field(default_factory=ServerLimits)

    def __post_init__(self) -> None:
        if not 0 <= self.port < 2**16:
            raise ConfigError(f"server.port is {self.port}; it needs 0 (any) to 65535", field="port")
        if not 0.005 <= self.reply_margin_s < 10:
            what = f"server.reply_margin_s is {self.reply_margin_s}"
            raise ConfigError(f"{what}; it needs 0.005 (less, and replies come late) to 10", field="reply_margin_s")
        for name in ("grace_s", "warm_up_timeout_s"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ConfigError(f"server.{name} is {getattr(self, name)}; it needs a positive number", field=name)
        if not self.insecure and not is_local(self.host):
            raise ConfigError(
                f"server.host is {self.host!r}, which other machines may reach, and there is no TLS yet: use 127.0.0.1 "
                "(and a tunnel), or insecure=true if everyone on that network may plan and look on",
                field="host",
            )

    @property
    def target(self) -> str:
        """What gRPC binds to."""
        if self.host.startswith("unix:"):
            return self.host
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def is_local(host: str) -> bool:
    """Whether only this machine can connect to a host: a loopback address, `localhost`, or a Unix socket."""
    if host == "localhost" or host.startswith("unix:"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class PlanningServer:
    """Serves plans over gRPC; a context manager that is ready inside.

    Args:
        solvers: {name: solver} of the models that are served. Whoever made them closes them.
        config: Where and how.
    """

    def __init__(self, solvers: Mapping[str, PlanSolver], config: ServerConfig | None = None) -> None:
        self.config = config or ServerConfig()
        self._models = ServedModels(solvers)
        self._health = health.HealthServicer()
        self._pool = ThreadPoolExecutor(self.config.limits.max_concurrent_calls, thread_name_prefix="serve")
        self._server = self._built()
        self._address = ""
        self._warm = threading.Thread(target=self._warm_up, name="warm-up", daemon=True)
        self._stopping = threading.Event()

    @property
    def address(self) -> str:
        """What clients connect to: host:port, or unix:/path."""
        return self._address

    def start(self) -> None:
        """Listens, and begins to warm up; until that is done, health says NOT_SERVING and plans get UNAVAILABLE.

        Raises:
            UnavailableError: The address cannot be had.
        """
        for name in self._health_names():
            self._health.set(name, health_pb2.HealthCheckResponse.NOT_SERVING)
        target = self.config.target
        try:
            port = self._server.add_insecure_port(target)
        except RuntimeError as error:
            raise UnavailableError(f"cannot listen at {target}: {error}; is the port taken?", field="port") from error
        if port == 0:
            raise UnavailableError(f"cannot listen at {target}; is the port taken?", field="port")
        self._address = target if target.startswith("unix:") else f"{target.rpartition(':')[0]}:{port}"
        self._server.start()
        self._warm.start()
        log.info("listening at %s", self._address)

    def wait_ready(self) -> None:
        """Waits until every model is warmed up.

        Raises:
            UnavailableError: A model could not be warmed up; the others serve.
        """
        self._warm.join()
        problems = {name: self._models.problem(name) for name in self._models.names()}
        failed = [f"{name}: {problem}" for name, problem in problems.items() if problem is not None]
        if failed:
            raise UnavailableError(f"not ready: {'; '.join(failed)}", field="model")

    def stop(self, grace_s: float | None = None) -> None:
        """Says NOT_SERVING at once, takes no new calls, and lets those in flight end; after the grace, cancels them.

        Args:
            grace_s: Seconds; the config's if None. Stopping twice does nothing.
        """
        self._stopping.set()
        self._health.enter_graceful_shutdown()
        self._server.stop(self.config.grace_s if grace_s is None else grace_s).wait()
        self._pool.shutdown(wait=True)

    def __enter__(self) -> Self:
        self.start()
        try:
            self.wait_ready()
        except BaseException:
            self.stop(0)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop(None if kind is None else 0)

    def _built(self) -> Any:
        config, limits = self.config, self.config.limits
        service = PlanningService(self._models, limits, reply_margin_s=config.reply_margin_s)
        server = grpc.server(
            self._pool,
            handlers=(handler_of(SERVICE, service, limits),),
            maximum_concurrent_rpcs=limits.max_concurrent_calls,
            options=(
                ("grpc.max_receive_message_length", limits.max_message_bytes),
                ("grpc.max_send_message_length", limits.max_message_bytes),
                ("grpc.so_reuseport", 0),  # a second server at the same port is an error, not a lottery
                ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),  # robots keep idle channels alive
                ("grpc.keepalive_permit_without_calls", 1),
            ),
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        if config.reflection:
            names = (SERVICE.full_name, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name)
            reflection.enable_server_reflection((*names, reflection.SERVICE_NAME), server)
        return server

    def _health_names(self) -> Iterable[str]:
        return ("", SERVICE.full_name, *(f"model/{name}" for name in self._models.names()))

    def _warm_up(self) -> None:
        """Makes one plan with each model: the first one is slow, and no robot should wait for it."""
        serving = health_pb2.HealthCheckResponse.SERVING
        for name, solver in self._models.items():
            try:
                self._plan_once(solver)
            except Exception as error:  # any failure of a model must leave the others serving
                log.exception("model %s could not be warmed up", name)
                reason = str(error) if isinstance(error, MStarError) else "the server's log has more"
                self._models.mark(name, f"its warm-up failed: {reason}")
            else:
                self._models.mark(name, None)
                self._health.set(f"model/{name}", serving)
        if any(self._models.problem(name) is None for name in self._models.names()):
            self._health.set(SERVICE.full_name, serving)
            self._health.set("", serving)

    def _plan_once(self, solver: PlanSolver) -> None:
        spec = solver.spec
        picture = np.full((*spec.image_size, 3), GREY, np.uint8)
        state = np.zeros(spec.state_size, np.float32) if spec.state_size else None
        episode = Episode(spec, Goal(latent=solver.encode(picture)))
        request = episode.request(Observation(picture[None], state))
        future = solver.submit(request, deadline_s=self.config.warm_up_timeout_s)
        future.result(self.config.warm_up_timeout_s)


def serve_until_signal(server: PlanningServer) -> None:
    """Waits for SIGTERM or SIGINT, then stops a started server gracefully. Call it from the main thread."""
    told: queue.SimpleQueue[int] = queue.SimpleQueue()  # an Event's lock could be held by the very thread that is told

    def tell(number: int, frame: FrameType | None) -> None:
        del frame
        told.put(number)

    old = {each: signal.signal(each, tell) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        told.get()
        server.stop()
    finally:
        for each, handler in old.items():
            signal.signal(each, handler)
