"""One run of one Loop for one request: counting, carrying, scanning, collecting and keeping the best."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from mstar_plan.errors import InvalidInputError, LimitExceededError
from mstar_plan.walks.component import ComputePolicy
from mstar_plan.walks.step import Collect, Loop, Scan
from mstar_plan.walks.stream import Stream


class LoopStop(enum.Enum):
    """Why a loop ended."""

    COUNT = "count"
    UNTIL = "until"
    BUDGET = "budget"
    POLICY = "policy"
    STREAM = "stream"


@dataclass(frozen=True)
class LoopEnd:
    """How a loop ended: why, and after how many iterations."""

    stop: LoopStop
    iterations: int


class LoopHost(Protocol):
    """What a loop needs of the request that it runs for."""

    values: dict[str, Any]
    size: int
    soft_deadline: float | None
    clock: Callable[[], float]
    policy: ComputePolicy | None


class LoopRun:
    """The state of one loop under way; `WalkState` drives it: begin, body, end, begin, ..., close."""

    def __init__(self, loop: Loop, host: LoopHost) -> None:
        self.loop, self.host = loop, host
        self.iteration = 0
        self.stop = LoopStop.COUNT
        self.gathered: list[str] = []
        self._times = _count(loop, host.values)
        self._kept: dict[str, list[Any]] = {name: [] for name, _ in loop.collects}
        self._best: dict[str, Any] = {}
        self._longest_s = 0.0
        self._began_s = 0.0
        self._timed = loop.anytime and host.soft_deadline is not None
        self._policy = host.policy.start(loop.name, host.values) if host.policy is not None else None
        for name, first in loop.carries:
            if name != first:
                host.values[name] = host.values[first]
        for source, scan in loop.scans:
            _check_scan(loop, source, scan, host.values[source], self._times)

    def take_chunk(self, stream: Stream, chunk: tuple[Any, int]) -> None:
        """Lays a stream's chunk over its wires."""
        values, (items, new) = self.host.values, chunk
        values[stream.into] = items
        if stream.new:
            values[stream.new] = torch.full((self.host.size,), new)

    def begin(self) -> bool:
        """Prepares the next iteration; False when there is none."""
        i, loop, values = self.iteration, self.loop, self.host.values
        if i == self._times:
            return False
        if self._timed:
            now = self.host.clock()
            if i and now + self._longest_s > self.host.soft_deadline:  # type: ignore[operator]
                self.stop = LoopStop.BUDGET
                return False
            self._began_s = now
        if loop.index:
            values[loop.index] = _index(i, self.host.size)
        for source, scan in loop.scans:
            values[scan.into] = values[source].select(scan.dim, i)
        if self._policy is not None:
            values.update(self._policy.before(i, values))
        return True

    def end(self) -> bool:
        """Keeps what the iteration gave; False when the loop is over."""
        loop, values = self.loop, self.host.values
        self.iteration += 1
        for name, _ in loop.collects:
            self._kept[name].append(values[name])
        if loop.best is not None:
            self._keep_best()
        if self._timed:
            self._longest_s = max(self._longest_s, self.host.clock() - self._began_s)
        if loop.until is not None and bool(values[loop.until].all()):
            self.stop = LoopStop.UNTIL
            return False
        if self._policy is not None and self._policy.after(self.iteration - 1, values):
            self.stop = LoopStop.POLICY
            return False
        return True

    def close(self) -> LoopEnd:
        """Writes what was gathered, and says how the loop ended."""
        values = self.host.values
        for name, collect in self.loop.collects:
            values[collect.into] = _gather(self.loop, name, collect, self._kept[name])
            self.gathered.append(collect.into)
        if self.loop.best is not None:
            for name, into in self.loop.best.keep.items():
                values[into] = self._best[name]
                self.gathered.append(into)
        return LoopEnd(self.stop, self.iteration)

    def _keep_best(self) -> None:
        best, values = self.loop.best, self.host.values
        assert best is not None
        names = {best.by, *best.keep}
        if not self._best:
            self._best = {name: values[name] for name in names}
            return
        new, old = values[best.by], self._best[best.by]
        better = (new < old) | (old.isnan() & ~new.isnan())
        if bool(better.all()):
            self._best = {name: values[name] for name in names}
        elif bool(better.any()):
            self._best = {name: _pick(better, values[name], self._best[name]) for name in names}


@functools.lru_cache(maxsize=4096)
def _index(i: int, size: int) -> Tensor:
    return torch.full((size,), i)


def _pick(better: Tensor, new: Tensor, old: Tensor) -> Tensor:
    return torch.where(better.reshape(-1, *[1] * (new.ndim - 1)), new, old)


def _count(loop: Loop, values: dict[str, Any]) -> int | None:
    times = values[loop.times] if isinstance(loop.times, str) else loop.times
    if times is None:
        return None
    if isinstance(times, Tensor):
        counts = set(times.reshape(-1).tolist())
        if len(counts) != 1:
            raise InvalidInputError(
                f"loop {loop.name!r} got counts {sorted(counts)}; the rows of one request need one count"
            )
        times = counts.pop()
    field = str(loop.times)
    if isinstance(times, bool) or not isinstance(times, int) or times < 1:
        raise InvalidInputError(
            f"loop {loop.name!r} got count {times!r} from {field!r}; it needs a whole number >= 1", field=field
        )
    if loop.limit is not None and times > loop.limit:
        raise LimitExceededError(
            f"loop {loop.name!r} was asked for {times} iterations; its limit is {loop.limit}", field=field
        )
    return times


def _check_scan(loop: Loop, source: str, scan: Scan, value: Any, times: int | None) -> None:
    if not isinstance(value, Tensor) or value.ndim <= scan.dim:
        raise InvalidInputError(
            f"loop {loop.name!r} scans {source!r} along axis {scan.dim}, which it does not have", field=source
        )
    if times is None or value.shape[scan.dim] < times:
        raise InvalidInputError(
            f"loop {loop.name!r} runs {times} times, but {source!r} has only {value.shape[scan.dim]} slices to scan",
            field=source,
        )


def _gather(loop: Loop, name: str, collect: Collect, kept: list[Any]) -> Any:
    if not kept:
        raise InvalidInputError(
            f"loop {loop.name!r} ran over an empty stream, so there is no {collect.into!r} to collect", field=name
        )
    return torch.cat(kept, collect.dim) if collect.concat else torch.stack(kept, collect.dim)
