"""Errors of the project to gRPC statuses with details, and back; the one table between them.

The details are those of google.rpc: BadRequest names the field at fault, ErrorInfo the reason and machine-readable
facts, RetryInfo when to come again.
"""

from __future__ import annotations

from collections.abc import Iterator

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from mstar_plan.errors import (
    CancelledError,
    ComponentError,
    DeadlineError,
    InvalidInputError,
    LimitExceededError,
    MStarError,
    NotFoundError,
    OverloadedError,
    UnavailableError,
)

DOMAIN = "plan.mstar"
MAX_TEXT = 600  # characters of one text; the details travel in headers, of which a client takes 8 KiB
RETRY_WHEN_UNAVAILABLE_S = 1.0

# The first class that an error is an instance of counts; a subclass goes with its parent unless it is named itself.
CODES: dict[type[MStarError], grpc.StatusCode] = {
    InvalidInputError: grpc.StatusCode.INVALID_ARGUMENT,
    NotFoundError: grpc.StatusCode.NOT_FOUND,
    LimitExceededError: grpc.StatusCode.RESOURCE_EXHAUSTED,
    OverloadedError: grpc.StatusCode.RESOURCE_EXHAUSTED,
    DeadlineError: grpc.StatusCode.DEADLINE_EXCEEDED,
    CancelledError: grpc.StatusCode.CANCELLED,
    UnavailableError: grpc.StatusCode.UNAVAILABLE,
    ComponentError: grpc.StatusCode.INTERNAL,
    MStarError: grpc.StatusCode.INTERNAL,
}

# What a status means that gRPC itself gave, without details.
_BARE: dict[grpc.StatusCode, tuple[type[MStarError], str]] = {
    grpc.StatusCode.UNAVAILABLE: (UnavailableError, "the server cannot be reached"),
    grpc.StatusCode.DEADLINE_EXCEEDED: (DeadlineError, "no reply before the call's deadline"),
    grpc.StatusCode.CANCELLED: (CancelledError, "the call was cancelled"),
    grpc.StatusCode.RESOURCE_EXHAUSTED: (LimitExceededError, "over a limit of gRPC"),
    grpc.StatusCode.UNIMPLEMENTED: (NotFoundError, "the server does not offer this call; is it another version?"),
    grpc.StatusCode.INVALID_ARGUMENT: (InvalidInputError, "the server refused the request"),
    grpc.StatusCode.NOT_FOUND: (NotFoundError, "not found"),
}


def code_of(error: MStarError) -> grpc.StatusCode:
    """Returns the gRPC code of an error."""
    return next(code for kind, code in CODES.items() if isinstance(error, kind))


def status_of(error: MStarError) -> status_pb2.Status:
    """Returns an error as a google.rpc.Status with its details."""
    message = _text(str(error))
    metadata = {_text(key): _text(value) for key, value in error.details.items()}
    if error.field:
        metadata["field"] = _text(error.field)
    details = [error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN, metadata=metadata)]
    if error.field and isinstance(error, InvalidInputError | LimitExceededError):
        violation = error_details_pb2.BadRequest.FieldViolation(field=_text(error.field), description=message)
        details.append(error_details_pb2.BadRequest(field_violations=[violation]))
    wait_s = _retry_after_s(error)
    if wait_s is not None:
        delay = duration_pb2.Duration(seconds=int(wait_s), nanos=int(wait_s % 1 * 1e9))
        details.append(error_details_pb2.RetryInfo(retry_delay=delay))
    return status_pb2.Status(code=code_of(error).value[0], message=message, details=[_packed(each) for each in details])


def error_of(failure: grpc.RpcError) -> MStarError:
    """Returns the error that a failed call stands for: the server's own where it sent details, else by the code."""
    try:
        status = rpc_status.from_call(failure)
    except ValueError:  # details that contradict the code: not from our server
        status = None
    for detail in status.details if status is not None else ():
        info = error_details_pb2.ErrorInfo()
        if detail.Unpack(info) and info.domain == DOMAIN:
            return _rebuilt(info.reason, status.message, dict(info.metadata))
    kind, meaning = _BARE.get(failure.code(), (ComponentError, f"the call failed with {failure.code().name}"))
    return kind(f"{meaning}: {failure.details()}")


def _rebuilt(reason: str, message: str, metadata: dict[str, str]) -> MStarError:
    field = metadata.pop("field", "")
    kind = next((each for each in _tree(MStarError) if each.reason == reason), MStarError)
    if issubclass(kind, OverloadedError):
        return kind(message, retry_after_s=float(metadata.get("retry_after_s", "0.1")), field=field)
    return kind(message, field=field, details=metadata)


def _tree(kind: type[MStarError]) -> Iterator[type[MStarError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _tree(child)


def _retry_after_s(error: MStarError) -> float | None:
    if isinstance(error, OverloadedError):
        return error.retry_after_s
    return RETRY_WHEN_UNAVAILABLE_S if isinstance(error, UnavailableError) else None


def _packed(detail: object) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(detail)
    return packed


def _text(text: str) -> str:
    """ASCII of bounded length: gRPC escapes every other byte of a header into three."""
    plain = text.encode("ascii", "backslashreplace").decode("ascii")
    return plain if len(plain) <= MAX_TEXT else f"{plain[: MAX_TEXT - 3]}..."
