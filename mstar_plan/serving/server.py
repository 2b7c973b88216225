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
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2

from mstar_plan.errors import ConfigError, UnavailableError
from mstar_plan.families.servable import Servable
from mstar_plan.rollout.solver import PlanSolver
from mstar_plan.runtime.runtime import Runtime
from mstar_plan.serving.described import pool_of
from mstar_plan.serving.dispatch import handler_of
from mstar_plan.serving.limits import ServerLimits
from mstar_plan.serving.parts import make_parts, warm_up

log = logging.getLogger(__name__)


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
    """Serves plans over gRPC, and the walks of families beside them; a context manager that is ready inside.

    Args:
        solvers: {name: solver} of the models that are planned with. Whoever made them closes them.
        config: Where and how.
        servables: {name: family} whose walks the V2 inference protocol offers.
        runtime: Has the families' graphs under the same names. Whoever made it closes it.
    """

    def __init__(
        self,
        solvers: Mapping[str, PlanSolver],
        config: ServerConfig | None = None,
        *,
        servables: Mapping[str, Servable] | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        self.config = config or ServerConfig()
        limits = self.config.limits
        self._parts = make_parts(solvers, servables or {}, runtime, limits, reply_margin_s=self.config.reply_margin_s)
        self._health = health.HealthServicer()
        self._calls = max(limits.max_concurrent_calls, sum(part.calls for part in self._parts))
        self._pool = ThreadPoolExecutor(self._calls, thread_name_prefix="serve")
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
        problems = [(name, part.served.problem(name)) for part in self._parts for name in part.served.names()]
        failed = [f"{name}: {problem}" for name, problem in problems if problem is not None]
        if failed:
            raise UnavailableError(f"not ready: {'; '.join(failed)}", field="model")

    def stop(self, grace_s: float | None = None) -> None:
        """Says NOT_SERVING at once, takes no new calls, and lets those in flight end; after the grace, cancels them.

        Args:
            grace_s: Seconds; the config's if None. Stopping twice does nothing.
        """
        self._stopping.set()
        self._health.enter_graceful_shutdown()
        for part in self._parts:
            part.drain()
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
        limits = self.config.limits
        server = grpc.server(
            self._pool,
            handlers=tuple(handler_of(part.service, part.methods, limits) for part in self._parts),
            maximum_concurrent_rpcs=self._calls,
            options=(
                ("grpc.max_receive_message_length", limits.max_message_bytes),
                ("grpc.max_send_message_length", limits.max_message_bytes),
                ("grpc.so_reuseport", 0),  # a second server at the same port is an error, not a lottery
                ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),  # robots keep idle channels alive
                ("grpc.keepalive_permit_without_calls", 1),
            ),
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        if self.config.reflection:
            described = [part.service for part in self._parts]
            described.append(health_pb2.DESCRIPTOR.services_by_name["Health"])
            names = (*(service.full_name for service in described), reflection.SERVICE_NAME)
            pool = pool_of([*(service.file for service in described), reflection_pb2.DESCRIPTOR])
            reflection.enable_server_reflection(names, server, pool)
        return server

    def _health_names(self) -> Iterable[str]:
        services = (part.service.full_name for part in self._parts)
        return ("", *services, *(f"model/{name}" for part in self._parts for name in part.served.names()))

    def _warm_up(self) -> None:
        """Tries every model out; one that works in all parts that have it is serving."""
        serving = health_pb2.HealthCheckResponse.SERVING
        for _, name in warm_up(self._parts, self.config.warm_up_timeout_s):
            if all(part.ready(name) for part in self._parts):
                self._health.set(f"model/{name}", serving)
        for part in self._parts:
            if any(part.served.problem(name) is None for name in part.served.names()):
                self._health.set(part.service.full_name, serving)
                self._health.set("", serving)


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
