"""Scheduler: which waiting calls a worker runs next. Earliest deadline, then fullest batch, then the least served."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass

from mstar_plan.errors import InvalidInputError
from mstar_plan.runtime.flight import Call
from mstar_plan.runtime.request import Request


@dataclass(frozen=True)
class SchedulerConfig:
    """How calls are chosen.

    Attributes:
        max_batch: Most rows of B that calls are joined to; a single call may have more.
        deadline_window_s: Deadlines in the same window of this many seconds count as equal, so that robots of one
            control rate share batches instead of queueing behind each other.
        oldest_every: Every so many turns the call that waited longest goes next, whatever the rest, so that none can
            wait for ever.
    """

    max_batch: int = 256
    deadline_window_s: float = 0.02
    oldest_every: int = 16

    def __post_init__(self) -> None:
        for name in ("max_batch", "oldest_every"):
            if getattr(self, name) < 1:
                raise InvalidInputError(f"{name} is {getattr(self, name)}; it needs at least 1", field=name)
        if not (math.isfinite(self.deadline_window_s) and self.deadline_window_s > 0):
            raise InvalidInputError(
                f"deadline_window_s is {self.deadline_window_s}; it needs a positive number of seconds",
                field="deadline_window_s",
            )


class Scheduler:
    """The waiting calls of one worker. Not thread-safe: it belongs to the worker's thread."""

    def __init__(self, config: SchedulerConfig | None = None) -> None:
        self.config = config or SchedulerConfig()
        self._loose: list[Call] = []  # not asked for their key yet
        self._groups: dict[Hashable, list[Call]] = {}
        self._count = 0
        self._turn = 0
        self._waiting: dict[str, int] = {}  # session -> calls
        self._served: dict[str, float] = {}  # session -> seconds, never behind `_level` while it waits
        self._level = 0.0  # what the least served of the waiting sessions has had

    def __len__(self) -> int:
        return self._count

    def add(self, call: Call) -> None:
        """One more call waits."""
        call.turn = self._turn
        self._loose.append(call)
        self._count += 1
        session = call.flight.job.session
        waiting = self._waiting.get(session, 0)
        self._waiting[session] = waiting + 1
        if not waiting:  # who comes (back) starts level with the least served, without a claim on the past
            self._served[session] = max(self._served.get(session, 0.0), self._level)

    def next(self) -> list[Call]:
        """Takes the calls to run next, as one batch: all of one component, and of equal key if more than one.

        Returns:
            At least one call, unless none waits.
        """
        if self._count == 0:
            return []
        self._turn += 1
        if self._count == 1:
            chosen = self._loose or next(iter(self._groups.values()))
            self._loose, self._groups = [], {}
        else:
            chosen = self._choose()
        self._forget(chosen)
        return chosen

    def served(self, session: str, seconds: float) -> None:
        """Notes a session's share of a call."""
        self._served[session] = self._served.get(session, self._level) + seconds

    def remove(self, request: Request) -> list[Call]:
        """Takes out every call of a request."""
        gone = [call for calls in (self._loose, *self._groups.values()) for call in calls if _of(call, request)]
        if gone:
            self._loose = [call for call in self._loose if not _of(call, request)]
            left = {key: [c for c in calls if not _of(c, request)] for key, calls in self._groups.items()}
            self._groups = {key: calls for key, calls in left.items() if calls}
            self._forget(gone)
        return gone

    def take_all(self) -> list[Call]:
        """Takes out every call."""
        gone = [call for calls in (self._loose, *self._groups.values()) for call in calls]
        self._loose, self._groups = [], {}
        self._forget(gone)
        return gone

    def _forget(self, calls: list[Call]) -> None:
        self._count -= len(calls)
        for call in calls:
            session = call.flight.job.session
            left = self._waiting[session] - 1
            if left:
                self._waiting[session] = left
            else:
                del self._waiting[session]
        if len(self._served) > _SESSIONS_KEPT:
            self._served = {s: v for s, v in self._served.items() if s in self._waiting or v > self._level}

    def _choose(self) -> list[Call]:
        for call in self._loose:
            self._groups.setdefault(call.key, []).append(call)
        self._loose = []
        self._level = max(self._level, min(self._served[s] for s in self._waiting))
        if len(self._groups) == 1:
            key, group = self._groups.popitem()
        else:
            key = min(self._groups, key=lambda k: self._group_rank(self._groups[k]))
            group = self._groups.pop(key)
        if sum([call.batch.size for call in group]) <= self.config.max_batch:
            return group
        chosen: list[Call] = []
        left: list[Call] = []
        rows = 0
        for call in sorted(group, key=self._call_rank):
            fits = not chosen or rows + call.batch.size <= self.config.max_batch
            (chosen if fits else left).append(call)
            rows += call.batch.size if fits else 0
        if left:
            self._groups[key] = left
        return chosen

    def _group_rank(self, calls: list[Call]) -> tuple[int, float, int, float, int]:
        """Smallest goes first: earliest deadline, fullest batch, least served, longest wait.

        A call that never joins is as full as it can be: behind batches that grow, it would wait for their end.
        """
        oldest = min(call.turn for call in calls)
        window = min(self._window(call) for call in calls)
        full = self.config.max_batch
        rows = full if calls[0].alone else min(sum(call.batch.size for call in calls), full)
        served = min(self._served[call.flight.job.session] for call in calls)
        return self._age(oldest), window, -rows, served, oldest

    def _call_rank(self, call: Call) -> tuple[int, float, float, int]:
        return self._age(call.turn), self._window(call), self._served[call.flight.job.session], call.turn

    def _age(self, turn: int) -> int:
        return turn if self._turn % self.config.oldest_every == 0 else 0

    def _window(self, call: Call) -> float:
        urgency = call.flight.urgency
        return urgency if urgency == math.inf else urgency // self.config.deadline_window_s


_SESSIONS_KEPT = 1024


def _of(call: Call, request: Request) -> bool:
    return call.flight.request is request
