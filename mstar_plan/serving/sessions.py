"""All sessions of a server: created within a bound, found by id, forgotten after their time to live."""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from mstar_plan.errors import (
    InvalidInputError,
    LimitExceededError,
    NotFoundError,
    OverloadedError,
    SessionExpiredError,
)
from mstar_plan.rollout.solver import PlanSolver
from mstar_plan.serving.limits import ServerLimits
from mstar_plan.serving.session import Session
from mstar_plan.types import Goal

ID_LENGTH = 22  # characters of 16 random bytes
REMEMBERED_ENDED = 4096  # ids of ended sessions that are still told apart from ids that never were


class SessionStore:
    """All sessions of a server, by id, with a bound on their number and a time to live. Thread-safe.

    Args:
        limits: Number and times to live.
        clock: Seconds from any fixed moment.
    """

    def __init__(self, limits: ServerLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits, self._clock = limits, clock
        self._lock = threading.Lock()
        self._sessions: dict[str, Session] = {}
        self._expires: dict[str, float] = {}
        self._ended: OrderedDict[str, str] = OrderedDict()

    def __len__(self) -> int:
        with self._lock:
            self._sweep()
            return len(self._sessions)

    def create(
        self,
        model: str,
        solver: PlanSolver,
        *,
        seed: int = 0,
        goal: Goal | None = None,
        ttl_s: float | None = None,
    ) -> Session:
        """Opens a session.

        Raises:
            InvalidInputError: A seed or time to live that is none.
            LimitExceededError: The time to live is over the limit.
            OverloadedError: There are as many sessions as the server holds.
        """
        ttl_s = self._ttl(ttl_s)
        check_seed(seed)
        with self._lock:
            self._sweep()
            if len(self._sessions) >= self._limits.max_sessions:
                wait_s = max(0.1, min(self._expires.values()) - self._clock())
                what = f"{len(self._sessions)} sessions are open; max_sessions is {self._limits.max_sessions}"
                raise OverloadedError(f"{what}; close one, or try again in {wait_s:.1f} s", retry_after_s=wait_s)
            session = Session(secrets.token_urlsafe(16), model, solver, ttl_s=ttl_s, seed=seed, goal=goal)
            self._sessions[session.session_id] = session
            self._expires[session.session_id] = self._clock() + ttl_s
            return session

    def get(self, session_id: str) -> Session:
        """Returns a session and gives it its whole time to live again.

        Raises:
            SessionExpiredError: It was there, and has expired or was closed.
            NotFoundError: It never was, as far as this server knows.
        """
        with self._lock:
            self._sweep()
            session = self._sessions.get(session_id)
            if session is None:
                raise self._missing(session_id)
            self._expires[session_id] = self._clock() + session.ttl_s
            return session

    def close(self, session_id: str) -> None:
        """Forgets a session.

        Raises:
            SessionExpiredError, NotFoundError: As `get`.
        """
        with self._lock:
            self._sweep()
            if session_id not in self._sessions:
                raise self._missing(session_id)
            self._end(session_id, "was closed")

    def _missing(self, session_id: str) -> NotFoundError:
        session_id = session_id[:ID_LENGTH]
        how = self._ended.get(session_id)
        if how is not None:
            what = f"session {session_id!r} {how}; make a new one with CreateSession"
            return SessionExpiredError(what, field="session_id")
        what = f"there is no session {session_id!r}, and none of this name has ended lately"
        return NotFoundError(f"{what}; make one with CreateSession", field="session_id")

    def _ttl(self, ttl_s: float | None) -> float:
        if ttl_s is None:
            return self._limits.session_ttl_s
        if not ttl_s > 0:  # NaN, too
            raise InvalidInputError(f"ttl_s is {ttl_s}; it needs a positive number of seconds", field="ttl_s")
        if ttl_s > self._limits.max_session_ttl_s:
            what = f"ttl_s is {ttl_s}; max_session_ttl_s is {self._limits.max_session_ttl_s}"
            raise LimitExceededError(what, field="ttl_s")
        return ttl_s

    def _sweep(self) -> None:
        now = self._clock()
        for session_id in [each for each, expires in self._expires.items() if expires <= now]:
            self._end(session_id, f"expired after {self._sessions[session_id].ttl_s:g} s without a call")

    def _end(self, session_id: str, how: str) -> None:
        del self._sessions[session_id], self._expires[session_id]
        self._ended[session_id] = how
        while len(self._ended) > REMEMBERED_ENDED:
            self._ended.popitem(last=False)


def check_seed(seed: int) -> None:
    """Raises InvalidInputError unless 0 <= seed < 2**63."""
    if not 0 <= seed < 2**63:
        raise InvalidInputError(f"seed is {seed}; it needs 0 <= seed < 2**63", field="seed")
