"""From bytes to a method of the service and back: one place where messages are parsed and errors become statuses."""

from __future__ import annotations

import functools
import logging
import re
import time
import uuid
from collections.abc import Callable, Iterator
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

NEVER_S = 1e8  # three years: nobody waits for as long, and clocks overflow not far beyond


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
        left: float | None = self.context.time_remaining()  # of a call without one, some gRPC versions say 292 years
        return None if left is None or left > NEVER_S else left

    def on_end(self, callback: Callable[[], Any]) -> None:
        """Calls back when the call is over: answered, cancelled, out of time, or its client gone. At once if it is."""
        if not self.context.add_callback(callback):
            callback()


def handler_of(service: ServiceDescriptor, methods: object, limits: ServerLimits) -> grpc.GenericRpcHandler:
    """Serves every method of a service by the method of `methods` that has its name in snake case.

    A method takes the parsed request and a Call, and returns the reply. What it raises of the project's errors becomes
    a status with details; anything else is logged under a reference, and the client sees the reference alone.

    Where both sides stream, a method takes an iterator of requests, in which the error stands in the place of a request
    that could not be read, and gives an iterator of replies; it sees to their size itself.
    """
    handlers = {}
    for method in service.methods:
        function, kind = getattr(methods, _snake(method.name)), GetMessageClass(method.input_type)
        if method.server_streaming:
            stream = functools.partial(_answer_stream, function, kind)
            handlers[method.name] = grpc.stream_stream_rpc_method_handler(stream)
        else:
            answer = functools.partial(_answer, function, kind, limits)
            handlers[method.name] = grpc.unary_unary_rpc_method_handler(answer)
    return grpc.method_handlers_generic_handler(service.full_name, handlers)


def failure_of(error: Exception, where: str) -> MStarError:
    """Returns what a client is told of an error: one of ours as it is; of any other, the reference in the log alone.

    Call it where the error is handled.
    """
    if isinstance(error, MStarError):
        return error
    reference = uuid.uuid4().hex[:12]
    log.exception("internal error %s in %s", reference, where)
    return ComponentError(f"internal error {reference}; the server's log has more under it")


def _answer(method: Callable[[Any, Call], Any], kind: Any, limits: ServerLimits, data: bytes, context: Any) -> bytes:
    call = Call(context, time.monotonic())
    try:
        reply: bytes = method(_parse(kind, data), call).SerializeToString()
        if len(reply) > limits.max_message_bytes:
            what = f"the reply has {len(reply)} bytes; max_message_bytes is {limits.max_message_bytes}"
            raise LimitExceededError(f"{what}; ask for less: fewer outputs, no predicted latents, a shorter horizon")
        return reply
    except Exception as error:
        failure = failure_of(error, getattr(method, "__name__", "a call"))
    context.abort_with_status(rpc_status.to_status(status_of(failure)))
    raise AssertionError("abort_with_status raises")


def _answer_stream(
    method: Callable[[Iterator[Any], Call], Iterator[Any]], kind: Any, data: Iterator[bytes], context: Any
) -> Iterator[bytes]:
    call = Call(context, time.monotonic())
    try:
        for reply in method(_parse_each(kind, data), call):
            yield reply.SerializeToString()
        return
    except Exception as error:
        failure = failure_of(error, getattr(method, "__name__", "a stream"))
    context.abort_with_status(rpc_status.to_status(status_of(failure)))


def _parse_each(kind: Any, data: Iterator[bytes]) -> Iterator[Any]:
    for one in data:
        try:
            request = _parse(kind, one)
        except InvalidInputError as error:
            request = error
        yield request


def _parse(kind: Any, data: bytes) -> Any:
    try:
        return kind.FromString(data)
    except DecodeError as error:
        what = f"the {len(data)} bytes received are not a {kind.DESCRIPTOR.full_name}"
        raise InvalidInputError(f"{what}; are client and server of one API version?") from error


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
