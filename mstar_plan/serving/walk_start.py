"""WalkStart: starts a walk that a message asks for, in one of the places that there are."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from mstar_plan.errors import DeadlineError, OverloadedError
from mstar_plan.runtime.event_stream import EventStream
from mstar_plan.runtime.request import Request
from mstar_plan.runtime.runtime import Runtime
from mstar_plan.serving.dispatch import Call
from mstar_plan.serving.inference_codec import Asked
from mstar_plan.serving.limits import ServerLimits
from mstar_plan.walks.component import release

RETRY_AFTER_S = 0.05  # about one walk


class WalkStart:
    """Starts walks, `max_concurrent_walks` at one time. Thread-safe.

    Args:
        runtime: Runs them.
        limits: How many.
    """

    def __init__(self, runtime: Runtime, limits: ServerLimits) -> None:
        self._runtime, self._most = runtime, limits.max_concurrent_walks
        self._places = threading.BoundedSemaphore(self._most)

    @contextlib.contextmanager
    def place(self) -> Iterator[None]:
        """Holds one of the places.

        Raises:
            OverloadedError: There is none.
        """
        self.take()
        try:
            yield
        finally:
            self.give_back()

    def take(self) -> None:
        """Takes a place, until `give_back`.

        Raises:
            OverloadedError: There is none.
        """
        if not self._places.acquire(blocking=False):
            what = f"{self._most} walks are running, which is max_concurrent_walks"
            raise OverloadedError(f"{what}; try again in {RETRY_AFTER_S} s", retry_after_s=RETRY_AFTER_S)

    def give_back(self) -> None:
        """Gives a place back."""
        self._places.release()

    def submit(self, asked: Asked, call: Call) -> tuple[Request, float | None]:
        """Starts a walk; returns its request and the seconds that it has, if there is a bound.

        Raises:
            MStarError: What the runtime says; what was prepared for the walk is given back then.
        """
        with _prepared(asked) as values:
            left_s = time_left(asked, call)
            request = self._runtime.submit(
                asked.target.face.walk,
                values,
                graph=asked.target.model,
                deadline_s=left_s,
                soft_time_s=asked.soft_time_s,
                deterministic=asked.deterministic,
            )
        return request, left_s

    def stream(self, asked: Asked, call: Call) -> EventStream:
        """Starts a walk and iterates over the values of its streams; see `submit`."""
        with _prepared(asked) as values:
            left_s = time_left(asked, call)
            return self._runtime.stream(
                asked.target.face.walk,
                values,
                emit=asked.streams,
                graph=asked.target.model,
                deadline_s=left_s,
                soft_time_s=asked.soft_time_s,
                deterministic=asked.deterministic,
            )


def time_left(asked: Asked, call: Call) -> float | None:
    """Seconds that a request has: the nearer of its own timeout and the deadline of its call; None: no end.

    Raises:
        DeadlineError: None are left.
    """
    bounds = [each for each in (asked.timeout_s, call.remaining_s()) if each is not None]
    left = min(bounds, default=None)
    if left is not None and left <= 0:
        raise DeadlineError("the call's deadline passed before its walk was started; allow more time", field="timeout")
    return left


@contextlib.contextmanager
def _prepared(asked: Asked) -> Iterator[Mapping[str, Any]]:
    """The walk's own inputs; they are given back if it is not started."""
    values = asked.target.face.prepare(asked.values)
    try:
        yield values
    except BaseException:
        release(values.values())
        raise
