"""One run of one Loop for one request: counting, carrying, scanning, collecting and keeping the best."""

from __future__ import annotations

import enum
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from mstar_plan.errors import ComponentError, InvalidInputError, LimitExceededError
from mstar_plan.walks.batch import gather
from mstar_plan.walks.component import ComputePolicy
from mstar_plan.walks.step import Collect, Loop, Scan
from mstar_plan.walks.stream import StreamBuffer


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
    device: torch.device
    soft_deadline: float | None
    clock: Callable[[], float]
    policy: ComputePolicy | None


class LoopRun:
    """The state of one loop under way; `WalkState` drives it: goes_on, begin, body, end, goes_on, ..., close."""

    __slots__ = (
        "_began_s", "_best", "_best_by", "_kept", "_longest_s", "_policy", "_scanned", "_timed", "_times", "gathered",
        "host", "iteration", "loop", "steady", "stop",
    )  # fmt: skip

    def __init__(self, loop: Loop, host: LoopHost) -> None:
        self.loop, self.host = loop, host
        self.iteration = 0
        self.stop = LoopStop.COUNT
        self.gathered: list[str] = []
        self._times = _count(loop, host.values)
        self._kept: dict[str, list[Any]] = {name: [] for name, _ in loop.collects}
        self._best: dict[str, Any] = {}
        self._best_by: list[float] = []
        self._longest_s = 0.0
        self._began_s = 0.0
        self._timed = loop.anytime and host.soft_deadline is not None
        self._policy = host.policy.start(loop.name, host.values) if host.policy is not None else None
        ends_early = loop.until is not None or self._timed or self._policy is not None
        self.steady = not ends_early and loop.stream is None and loop.best is None  # then `rounds` will do
        self._scanned = [(scan, _to_scan(loop, source, scan, host.values, self._times)) for source, scan in loop.scans]
        firsts = [host.values[first] for _, first in loop.carries]  # all from before the loop
        for (name, _), value in zip(loop.carries, firsts, strict=True):
            host.values[name] = value

    def rounds(self) -> Iterator[int]:
        """All iterations of a steady loop: what `begin` and `end` do, for a fraction of their time."""
        loop, values, size, device = self.loop, self.host.values, self.host.size, self.host.device
        times = self._times
        assert times is not None, "a loop without a stream has a count"
        slices = [(scan.into, _slices(value, scan.dim, times)) for scan, value in self._scanned]
        kept = list(self._kept.items())
        for i in range(times):
            if loop.index:
                values[loop.index] = _index(i, size, device)
            for into, parts in slices:
                values[into] = parts[i]
            yield i
            for name, items in kept:
                items.append(values[name])
            self.iteration = i + 1

    def goes_on(self) -> bool:
        """Whether there is another iteration: False when the count is reached, or the time is up."""
        if self.iteration == self._times:
            return False
        if self._timed:
            now = self.host.clock()
            if self.iteration and now + self._longest_s > self.host.soft_deadline:  # type: ignore[operator]
                self.stop = LoopStop.BUDGET
                return False
            self._began_s = now
        return True

    def take_chunk(self, buffer: StreamBuffer) -> None:
        """Lays a stream's next chunk over its wires."""
        stream, values = buffer.stream, self.host.values
        values[stream.into], new = buffer.pop()
        if stream.new:
            values[stream.new] = new

    def begin(self) -> None:
        """Prepares the next iteration."""
        i, loop, values = self.iteration, self.loop, self.host.values
        if loop.index:
            values[loop.index] = _index(i, self.host.size, self.host.device)
        for scan, value in self._scanned:
            values[scan.into] = value.select(scan.dim, i)
        if self._policy is not None:
            values.update(self._policy.before(i, values))

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
        if loop.until is not None and _is_over(loop, values[loop.until]):
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
                if not self._best:
                    raise InvalidInputError(
                        f"loop {self.loop.name!r} ran over an empty stream, so there is no best {into!r} to keep",
                        field=name,
                    )
                values[into] = self._best[name]
                self.gathered.append(into)
        return LoopEnd(self.stop, self.iteration)

    def _keep_best(self) -> None:
        best, values = self.loop.best, self.host.values
        assert best is not None
        names = {best.by, *best.keep}
        by = values[best.by]
        if not isinstance(by, Tensor) or by.shape != (self.host.size,):
            got = tuple(by.shape) if isinstance(by, Tensor) else type(by).__name__
            raise ComponentError(
                f"loop {self.loop.name!r} keeps the best by {best.by!r}, which is {got}; write one number a row: "
                f"shape ({self.host.size},)"
            )
        new, old = by.tolist(), self._best_by  # B numbers, compared faster here than there
        if not self._best:
            better = [True] * len(new)
        else:
            better = [n < o or (math.isnan(o) and not math.isnan(n)) for n, o in zip(new, old, strict=True)]
        if all(better):
            self._best = {name: values[name] for name in names}
            self._best_by = new
        elif any(better):
            self._best = {name: _pick(self.loop, name, better, values[name], self._best[name]) for name in names}
            self._best_by = [n if b else o for n, o, b in zip(new, old, better, strict=True)]


@functools.lru_cache(maxsize=4096)
def _index(i: int, size: int, device: torch.device) -> Tensor:
    with torch.inference_mode(False):  # shared with callers that record gradients
        return torch.full((size,), i, device=device)


def _slices(value: Tensor, dim: int, times: int) -> Sequence[Tensor]:
    return (value if value.shape[dim] == times else value.narrow(dim, 0, times)).unbind(dim)


def _is_over(loop: Loop, until: Any) -> bool:
    if isinstance(until, Tensor):
        return bool(until.all())
    if not isinstance(until, bool):
        raise ComponentError(
            f"loop {loop.name!r} ends when {loop.until!r} is true, but it is {until!r}; write a bool or a tensor of "
            "bools"
        )
    return until


def _pick(loop: Loop, name: str, better: list[bool], new: Any, old: Any) -> Any:
    """Row by row the new value where it is better, or else the old one."""
    if isinstance(new, Tensor) and isinstance(old, Tensor) and new.shape == old.shape and len(new) == len(better):
        mask = torch.tensor(better, device=new.device)
        return torch.where(mask.reshape(-1, *[1] * (new.ndim - 1)), new, old)
    if hasattr(new, "join_key") and type(new) is type(old):
        ones = [1] * len(better)
        rows = zip(better, new.split(ones), old.split(ones), strict=True)
        return type(new).join([n if b else o for b, n, o in rows])
    if not isinstance(new, Tensor) and type(new) is type(old) and new == old:
        return new
    raise ComponentError(
        f"loop {loop.name!r} keeps the best {name!r}, but cannot take rows of two values that are not tensors of equal "
        f"shape; write tensors [{len(better)}, ...], or send rows one by one"
    )


def _count(loop: Loop, values: dict[str, Any]) -> int | None:
    times = values[loop.times] if isinstance(loop.times, str) else loop.times
    if times is None or (type(times) is int and 1 <= times <= (loop.limit or times)):
        return times
    if isinstance(times, Tensor):
        counts = set(times.reshape(-1).tolist())
        if len(counts) != 1:
            raise InvalidInputError(
                f"loop {loop.name!r} got counts {sorted(counts)} from {loop.times!r}; the rows of one request need one "
                "count",
                field=str(loop.times),
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


def _to_scan(loop: Loop, source: str, scan: Scan, values: dict[str, Any], times: int | None) -> Tensor:
    value = values[source]
    if not isinstance(value, Tensor) or value.ndim <= scan.dim:
        raise InvalidInputError(
            f"loop {loop.name!r} scans {source!r} along axis {scan.dim}, which it does not have; send a tensor of more "
            "axes",
            field=source,
        )
    assert times is not None, "a loop over a stream scans nothing"
    if value.shape[scan.dim] < times:
        raise InvalidInputError(
            f"loop {loop.name!r} runs {times} times, but {source!r} has only {value.shape[scan.dim]} slices to scan; "
            "send as many",
            field=source,
        )
    return value


def _gather(loop: Loop, name: str, collect: Collect, kept: list[Any]) -> Any:
    if not kept:
        raise InvalidInputError(
            f"loop {loop.name!r} ran over an empty stream, so there is no {collect.into!r} to collect", field=name
        )
    return gather(kept, f"loop {loop.name!r} collecting {name!r}", collect.dim, collect.concat)
