"""Every error that a user can cause, in one tree; `serving/status.py` maps them to gRPC codes.

    MStarError
    |-- InvalidInputError     a value sent by a user is wrong: shape, dtype, size, NaN, missing goal
    |   |-- WalkError         a walk, graph or stream is put together wrongly
    |   |-- ConfigError       a config key or value is wrong
    |   `-- WeightsError      a weight file is damaged, or belongs to another architecture
    |-- NotFoundError         a name is not known: model, walk, session, environment
    |   `-- SessionExpiredError   a session that was there is gone; make it anew
    |-- LimitExceededError    a request is over a limit of this server (never clamped)
    |-- OverloadedError       the queue is full; try again after `retry_after_s`
    |-- DeadlineError         the time ran out before there was anything to return
    |-- CancelledError        the caller took the request back
    |-- UnavailableError      starting up, shutting down, or a needed part of the machine is missing
    `-- ComponentError        a component failed, or gave values that are not finite: the model's fault

Every message names the thing, the value and the cure.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class MStarError(Exception):
    """Base of all errors of this project.

    Args:
        message: What is wrong, with the offending value and the cure, in one line.
        field: Name of the argument or message field at fault, if there is one.
        details: Short machine-readable facts that travel with the error over the wire.
    """

    reason = "MSTAR_ERROR"

    def __init__(self, message: str, *, field: str = "", details: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.field = field
        self.details = dict(details or {})


class InvalidInputError(MStarError):
    """A value sent by a user is wrong."""

    reason = "INVALID_INPUT"


class WalkError(InvalidInputError):
    """A walk, graph or stream is put together wrongly."""

    reason = "INVALID_WALK"


class ConfigError(InvalidInputError):
    """A config key or value is wrong."""

    reason = "INVALID_CONFIG"


class WeightsError(InvalidInputError):
    """A weight file is damaged or belongs to another architecture."""

    reason = "INVALID_WEIGHTS"


class NotFoundError(MStarError):
    """A name is not known."""

    reason = "NOT_FOUND"


class SessionExpiredError(NotFoundError):
    """A session is not there any more; the client makes a new one."""

    reason = "SESSION_EXPIRED"


class LimitExceededError(MStarError):
    """A request is over a limit of this server."""

    reason = "LIMIT_EXCEEDED"


class OverloadedError(MStarError):
    """The queue is full.

    Args:
        message: What is full, and of what size.
        retry_after_s: When to try again, in seconds.
    """

    reason = "OVERLOADED"

    def __init__(self, message: str, *, retry_after_s: float = 0.1, field: str = "") -> None:
        super().__init__(message, field=field, details={"retry_after_s": f"{retry_after_s:.3f}"})
        self.retry_after_s = retry_after_s


class DeadlineError(MStarError):
    """The time ran out before there was anything to return."""

    reason = "DEADLINE"


class CancelledError(MStarError):
    """The caller took the request back."""

    reason = "CANCELLED"


class UnavailableError(MStarError):
    """Starting up, shutting down, or a needed part of the machine is missing."""

    reason = "UNAVAILABLE"


class ComponentError(MStarError):
    """A component failed, or gave values that are not finite."""

    reason = "COMPONENT_FAILED"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns the tail of a message on an unknown name: `; did you mean 'x'?` for a near miss, and the known names."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if near:
        return f"; did you mean {near[0]!r}? (known: {', '.join(names)})"
    return f"; known: {', '.join(names) or 'none'}"
