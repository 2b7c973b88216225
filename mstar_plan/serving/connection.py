"""A client's connection: the channel, its deadlines, and statuses that become errors again. Needs no torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import grpc
from grpc_health.v1 import health_pb2_grpc

from mstar_plan.errors import InvalidInputError
from mstar_plan.serving.codec import ImageFormat
from mstar_plan.serving.limits import ServerLimits
from mstar_plan.serving.proto.mstar.plan.v1 import planning_pb2_grpc
from mstar_plan.serving.status import error_of

Reply = TypeVar("Reply")


@dataclass(frozen=True)
class ClientConfig:
    """How a client talks.

    Attributes:
        timeout_s: Deadline of a call in seconds. A search ends in time for its reply to keep it.
        image_format: "raw" (same plans as in process), "png" (same plans, smaller) or "jpeg" (smallest).
        max_message_bytes: Of one reply.
        keepalive_s: Seconds of silence after which the connection is tested.
    """

    timeout_s: float = 10.0
    image_format: ImageFormat = "raw"
    max_message_bytes: int = 16 * 2**20
    keepalive_s: float = 20.0

    def __post_init__(self) -> None:
        for name in ("timeout_s", "max_message_bytes", "keepalive_s"):
            if not 0 < getattr(self, name) < float("inf"):
                raise InvalidInputError(f"{name} is {getattr(self, name)}; it needs a positive number", field=name)
        if self.image_format not in ("raw", "png", "jpeg"):
            what = f"image_format is {self.image_format!r}"
            raise InvalidInputError(f"{what}; use 'raw', 'png' or 'jpeg'", field="image_format")


class Connection:
    """A channel to one server. Thread-safe.

    Args:
        address: host:port, or unix:/path.
        config: How to talk.
    """

    def __init__(self, address: str, config: ClientConfig) -> None:
        self.address, self.config = address, config
        self._channel = grpc.insecure_channel(
            address,
            options=(
                ("grpc.max_receive_message_length", config.max_message_bytes),
                ("grpc.max_send_message_length", -1),  # the server says what it takes
                ("grpc.keepalive_time_ms", int(1e3 * config.keepalive_s)),
                ("grpc.keepalive_permit_without_calls", 1),
                ("grpc.http2.max_pings_without_data", 0),
                ("grpc.enable_http_proxy", 0),  # a robot's loop never goes through a web proxy
            ),
        )
        self.planning = planning_pb2_grpc.PlanningServiceStub(self._channel)
        self.health = health_pb2_grpc.HealthStub(self._channel)
        # What a reply may hold: as much as fits the message. The server's own limits are about requests.
        self.limits = ServerLimits(max_tensor_elements=config.max_message_bytes)

    def call(self, method: Callable[..., Reply], message: object, timeout_s: float | None = None) -> Reply:
        """Makes one call.

        Args:
            method: Of a stub.
            message: Its request.
            timeout_s: Deadline; the config's if None.

        Raises:
            MStarError: What the server said, or why it said nothing.
        """
        try:
            return method(message, timeout=self.config.timeout_s if timeout_s is None else timeout_s)
        except grpc.RpcError as error:
            raise error_of(error) from None
        except ValueError as error:  # gRPC's word for a channel that was closed
            raise InvalidInputError(f"the call cannot be made: {error}; is the client closed?") from error

    def close(self) -> None:
        """Ends the connection, and the calls on it."""
        self._channel.close()
