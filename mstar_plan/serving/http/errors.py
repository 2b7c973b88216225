"""Errors of the project as HTTP answers in the shape that OpenAI's clients read; the one table between them."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

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

_log = logging.getLogger(__name__)

RETRY_WHEN_UNAVAILABLE_S = 1.0
HUNG_UP = 499  # of a client that has gone; it is counted and logged, and nobody reads it
MAX_TEXT = 2000  # characters of one message


class BodyTooLargeError(LimitExceededError):
    """The body of a request is over the server's limit."""

    reason = "BODY_TOO_LARGE"


class UnauthorisedError(MStarError):
    """A request came without a token that the server knows."""

    reason = "INVALID_API_KEY"


class ForbiddenError(MStarError):
    """A page of another server sent it."""

    reason = "FORBIDDEN_ORIGIN"


class MethodNotAllowedError(MStarError):
    """The path exists, but not for this method."""

    reason = "METHOD_NOT_ALLOWED"


_FORMS = frozenset({"body", "query", "path", "str", "int", "float", "bool"})

# The first class that an error is an instance of counts: its code, and its type in OpenAI's words.
CODES: dict[type[MStarError], tuple[int, str]] = {
    InvalidInputError: (400, "invalid_request_error"),
    UnauthorisedError: (401, "authentication_error"),
    ForbiddenError: (403, "permission_error"),
    NotFoundError: (404, "invalid_request_error"),
    MethodNotAllowedError: (405, "invalid_request_error"),
    BodyTooLargeError: (413, "invalid_request_error"),
    LimitExceededError: (400, "invalid_request_error"),
    OverloadedError: (429, "rate_limit_error"),
    CancelledError: (HUNG_UP, "cancelled"),
    UnavailableError: (503, "service_unavailable"),
    DeadlineError: (504, "timeout"),
    ComponentError: (500, "server_error"),
    MStarError: (500, "server_error"),
}


def code_of(error: MStarError) -> int:
    """Returns the HTTP code of an error."""
    return _row(error)[0]


def body_of(error: MStarError) -> dict[str, Any]:
    """Returns an error as OpenAI's body: {"error": {"message", "type", "param", "code"}}."""
    code = error.reason.lower()
    if isinstance(error, NotFoundError) and error.field == "model":
        code = "model_not_found"
    text = str(error).encode("utf-8", "backslashreplace").decode()
    text = text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 3]}..."
    return {"error": {"message": text, "type": _row(error)[1], "param": error.field or None, "code": code}}


def headers_of(error: MStarError) -> dict[str, str]:
    """Returns the headers that go with an error: when to come again, and what to come with."""
    if isinstance(error, UnauthorisedError):
        return {"www-authenticate": "Bearer"}
    wait_s = error.retry_after_s if isinstance(error, OverloadedError) else RETRY_WHEN_UNAVAILABLE_S
    if isinstance(error, OverloadedError | UnavailableError):
        return {"retry-after": str(max(1, math.ceil(wait_s))), "retry-after-ms": str(math.ceil(1e3 * wait_s))}
    return {}


def encoded(error: MStarError) -> bytes:
    """Returns `body_of` as JSON."""
    return json.dumps(body_of(error)).encode()


def as_ours(raised: BaseException) -> MStarError:
    """Returns whatever was raised as an error of ours: an unknown one is the server's fault, and goes to the log."""
    if isinstance(raised, MStarError):
        return raised
    if isinstance(raised, BaseExceptionGroup):  # of tasks that ran side by side: the first says why
        return as_ours(raised.exceptions[0])
    _log.error("a request failed", exc_info=raised)
    return MStarError("the server failed; its log has more")


def of_validation(problems: Sequence[Mapping[str, Any]]) -> InvalidInputError:
    """Returns what a body is refused with: the first of its problems as pydantic lists them, with its place."""
    unknown = [problem for problem in problems if problem["type"] == "extra_forbidden"]
    # Of a choice between several forms, pydantic lists what each would say: the one that got furthest was meant.
    problem = max(unknown or problems, key=lambda each: len(each["loc"]))
    field = _place(problem["loc"]) or "body"
    if problem["type"] == "extra_forbidden":
        return InvalidInputError(f"{field!r} is not offered here; leave it out", field=field)
    if problem["type"] == "missing":
        return InvalidInputError(f"{field} is missing", field=field)
    given = problem.get("input")
    plain = isinstance(given, bool | int | float) or (isinstance(given, str) and len(given) < 40)
    shown = f"{field} is {given!r}" if plain else f"{field} is wrong"
    return InvalidInputError(f"{shown}: {problem['msg'][:400]}", field=field)


def _place(parts: Sequence[str | int]) -> str:
    """A place in a body as OpenAI writes it, `messages[0].content`; names of forms that pydantic adds are left out."""
    place = ""
    before: str | int | None = None
    for part in parts:
        if isinstance(part, int):
            place += f"[{part}]"
        elif part == before:  # the form's name, which is that of its one field
            continue
        elif part not in _FORMS and part.isidentifier() and not part[0].isupper():
            place += f".{part}" if place else part
        before = part
    return place


def _row(error: MStarError) -> tuple[int, str]:
    return next(row for kind, row in CODES.items() if isinstance(error, kind))
