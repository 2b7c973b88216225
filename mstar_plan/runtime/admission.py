"""Admission: the bound on requests in the house, in all and for each session; over it is an error at once."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from mstar_plan.errors import InvalidInputError, OverloadedError


@dataclass(frozen=True)
class AdmissionConfig:
    """Bounds on requests that have been submitted and have not ended.

    Attributes:
        max_requests: In all.
        max_per_session: Of one named session; requests without a session are bounded by `max_requests` alone.
    """

    max_requests: int = 256
    max_per_session: int = 64

    def __post_init__(self) -> None:
        for name in ("max_requests", "max_per_session"):
            if getattr(self, name) < 1:
                raise InvalidInputError(f"{name} is {getattr(self, name)}; it needs at least 1", field=name)


class Admission:
    """Counts who is in. Thread-safe."""

    def __init__(self, config: AdmissionConfig) -> None:
        self.config = config
        self._lock = threading.Lock()
        self._sessions: dict[str, int] = {}
        self._count = 0
        self._left_at = 0.0
        self._gap_s = 0.05  # between two departures, lately: when a place is likely to be free

    def __len__(self) -> int:
        return self._count

    def enter(self, session: str) -> None:
        """Lets one request in.

        Raises:
            OverloadedError: The house, or the session's part of it, is full.
        """
        with self._lock:
            mine = self._sessions.get(session, 0)
            if self._count >= self.config.max_requests:
                raise self._full(f"{self._count} requests are in the queue, which is all it holds")
            if session and mine >= self.config.max_per_session:
                raise self._full(f"session {session!r} has {mine} requests in the queue, which is all it may have")
            if self._count == 0:
                self._left_at = time.monotonic()
            self._count += 1
            self._sessions[session] = mine + 1

    def leave(self, session: str) -> None:
        """One request has ended."""
        now = time.monotonic()
        with self._lock:
            self._count -= 1
            mine = self._sessions[session] - 1
            if mine:
                self._sessions[session] = mine
            else:
                del self._sessions[session]
            self._gap_s += 0.1 * (now - self._left_at - self._gap_s)
            self._left_at = now

    def _full(self, what: str) -> OverloadedError:
        retry_after_s = min(max(self._gap_s, 0.01), 5.0)
        return OverloadedError(f"{what}; try again in {retry_after_s:.2f} s", retry_after_s=retry_after_s)
