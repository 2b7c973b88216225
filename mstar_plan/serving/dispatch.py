"""From bytes to a method of the service and back: one place where messages are parsed and errors become statuses."""

from __future__ import annotations

import functools
import logging
import re
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from grpc_status import rpc_status

from mstar_plan.errors import ComponentError, InvalidInputError, LimitExceededError, MStarError
from mstar_plan.serving.limits import ServerLimits
from mstar_plan.serving.status import status_of

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Call:
    """One call that is being answered.

    Attributes:
        context: Of gRPC.
        arrived: When it came, of `time.monotonic`.
    """

    context: Any
    arrived: float

    def elapsed_s(self) -> float:
        """Seconds since it came."""
        return time.monotonic() - self.arrived

    def remaining_s(self) -> float | None:
        """Seconds until the client's deadline; None if it set none."""
        left: float | None = self.context.time_remaining()
        return left

    def on_end(self, callback: Callable[[], Any]) -> None:
        """Calls back when the call is over: answered, cancelled, out of time, or its client gone. At once if it is."""
        if not self.context.add_callback(callback):
            callback()


def handler_of(service: ServiceDescriptor, methods: object, limits: ServerLimits) -> grpc.GenericRpcHandler:
    """Serves every method of a service by the method of `methods` that has its name in snake case.

    A method takes the parsed request and a Call, and returns the reply. What it raises of the project's errors becomes
    a status with details; anything else is logged under a reference, and the client sees the reference alone.
    """
    handlers = {}
    for method in service.methods:
        function, kind = getattr(methods, _snake(method.name)), GetMessageClass(method.input_type)
        handlers[method.name] = grpc.unary_unary_rpc_method_handler(functools.partial(_answer, function, kind, limits))
    return grpc.method_handlers_generic_handler(service.full_name, handlers)


def _answer(method: Callable[[Any, Call], Any], kind: Any, limits: ServerLimits, data: bytes, context: Any) -> bytes:
    call = Call(context, time.monotonic())
    try:
        reply: bytes = method(_parse(kind, data), call).SerializeToString()
        if len(reply) > limits.max_message_bytes:
            what = f"the reply has {len(reply)} bytes; max_message_bytes is {limits.max_message_bytes}"
            raise LimitExceededError(f"{what}; do not ask for predicted latents, or for a shorter horizon")
        return reply
    except MStarError as error:
        failure = error
    except Exception:
        reference = uuid.uuid4().hex[:12]
        log.exception("internal error %s in %s", reference, getattr(method, "__name__", method))
        failure = ComponentError(f"internal error {reference}; the server's log has more under it")
    context.abort_with_status(rpc_status.to_status(status_of(failure)))
    raise AssertionError("abort_with_status raises")


def _parse(kind: Any, data: bytes) -> Any:
    try:
        return kind.FromString(data)
    except DecodeError as error:
        what = f"the {len(data)} bytes received are not a {kind.DESCRIPTOR.full_name}"
        raise InvalidInputError(f"{what}; are client and server of one API version?") from error


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
