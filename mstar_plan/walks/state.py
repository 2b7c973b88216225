"""WalkState: where one request stands on its walk. The only mutable thing in this room.

Every step that is under way is a generator (a *strand*); a strand stops at a node until the node is completed, at a
Parallel until its branches have ended, and at a stream until there is a chunk. So the order in which a runtime
completes the ready nodes is free, and the values do not depend on it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from mstar_plan.errors import ComponentError, InvalidInputError, WalkError, did_you_mean
from mstar_plan.walks.batch import Batch
from mstar_plan.walks.component import ComputePolicy
from mstar_plan.walks.loop_run import LoopEnd, LoopRun, LoopStop
from mstar_plan.walks.step import Branch, Loop, Node, Parallel, Sequential, Step, every_step
from mstar_plan.walks.stream import StreamBuffer
from mstar_plan.walks.walk import Walk


@dataclass(frozen=True, eq=False)
class _Fork:
    """A strand waits until these have ended."""

    strands: Sequence[Generator[_Wait, None, None]]


_Wait = Node | StreamBuffer | _Fork
_Run = Generator[_Wait, None, None]
OnWrite = Callable[[str, Any], None]


class _Strand:
    __slots__ = ("parent", "pending", "run")

    def __init__(self, run: _Run, parent: _Strand | None) -> None:
        self.run, self.parent, self.pending = run, parent, 0


class WalkState:
    """One request on a walk.

    Args:
        walk: The walk.
        values: A value for every input of the walk; tensors lead with the same B.
        soft_deadline: Time of `clock`, in seconds, at which anytime loops end with what they have.
        clock: Monotonic clock.
        policy: Compute policy of the loops; None is off.
        on_write: Called with (wire, value) for each value that a node writes.

    Raises:
        InvalidInputError: An input is missing or unknown, or the B of the tensors differ.
    """

    def __init__(
        self,
        walk: Walk,
        values: Mapping[str, Any],
        *,
        soft_deadline: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        policy: ComputePolicy | None = None,
        on_write: OnWrite | None = None,
    ) -> None:
        self.walk = walk
        self.size = check_inputs(walk, values)
        self.values: dict[str, Any] = dict(values)
        self.soft_deadline, self.clock, self.policy = soft_deadline, clock, policy
        self.loop_ends: dict[str, LoopEnd] = {}
        self.finished = False
        self._on_write = on_write
        self._waiting: dict[str, tuple[Node, _Strand]] = {}
        self._taps: dict[str, StreamBuffer] = {}
        self._sources: dict[str, StreamBuffer] = {}
        self._blocked: dict[str, _Strand] = {}
        self._resume(_Strand(self._run(walk.step), None))

    def ready(self) -> list[Node]:
        """The nodes that can run now; empty when finished."""
        return [node for node, _ in self._waiting.values()]

    def sole(self) -> Node | None:
        """The ready node where there is exactly one."""
        if len(self._waiting) != 1:
            return None
        for node, _ in self._waiting.values():
            return node
        return None  # pragma: no cover

    def inputs_of(self, node: Node) -> Batch:
        """What the node reads, by port."""
        values = self.values
        return Batch({port: values[wire] for port, wire in node.inputs}, self.size)

    def complete(self, node: Node, outputs: Mapping[str, Any]) -> None:
        """Takes a ready node's answer, by port, and goes on to the next nodes.

        Raises:
            ComponentError: The answer lacks a port that the node declares, or has one more.
        """
        _, strand = self._waiting.pop(node.name)
        values = self.values
        if len(outputs) != len(node.outputs):
            raise _wrong_ports(node, outputs)
        for port, wire in node.outputs:
            if port not in outputs:
                raise _wrong_ports(node, outputs)
            values[wire] = outputs[port]
        if self._on_write is not None:
            for _, wire in node.outputs:
                self._on_write(wire, values[wire])
        if self._taps:
            self._feed(node)
        self._resume(strand)

    def outputs(self) -> dict[str, Any]:
        """The walk's outputs, once it has finished."""
        assert self.finished, "outputs() before the walk has finished"
        return {name: self.values[name] for name in self.walk.outputs}

    def _resume(self, strand: _Strand) -> None:
        while True:
            wait = next(strand.run, None)
            if type(wait) is Node:
                self._waiting[wait.name] = (wait, strand)
                return
            if type(wait) is _Fork:
                strand.pending = len(wait.strands)
                for run in wait.strands:
                    self._resume(_Strand(run, strand))
                return
            if type(wait) is StreamBuffer:
                self._blocked[wait.stream.into] = strand
                return
            parent = strand.parent
            if parent is None:
                self.finished = True
                return
            parent.pending -= 1
            if parent.pending:
                return
            strand = parent

    def _run(self, step: Step) -> _Run:
        match step:
            case Node():
                yield step
            case Sequential(steps):
                for inner in steps:
                    if type(inner) is Node:  # the common case, without a generator of its own
                        yield inner
                    else:
                        yield from self._run(inner)
            case Loop():
                yield from self._run_loop(step)
            case Parallel():
                yield from self._run_parallel(step)
            case Branch():
                yield from self._run(self._case(step))

    def _run_loop(self, loop: Loop) -> _Run:
        run = LoopRun(loop, self)
        body = loop.body
        while True:
            if loop.stream is not None:
                buffer = self._sources[loop.stream]
                chunk = buffer.pop()
                while chunk is None and not buffer.closed:
                    yield buffer
                    chunk = buffer.pop()
                if chunk is None:
                    run.stop = LoopStop.STREAM
                    break
                run.take_chunk(buffer.stream, chunk)
            if not run.begin():
                break
            if type(body) is Node:
                yield body
            else:
                yield from self._run(body)
            if not run.end():
                break
        self.loop_ends[loop.name] = run.close()
        if self._on_write is not None:
            for name in run.gathered:
                self._on_write(name, self.values[name])

    def _run_parallel(self, parallel: Parallel) -> _Run:
        for stream in parallel.streams:
            buffer = StreamBuffer(stream)
            self._sources[stream.into] = buffer
        strands = []
        for branch in parallel.branches:
            written = {wire for s in every_step(branch) if isinstance(s, Node) for _, wire in s.outputs}
            mine = [self._sources[s.into] for s in parallel.streams if s.value in written]
            for buffer in mine:
                self._taps[buffer.stream.into] = buffer
            strands.append(self._run_producer(branch, mine) if mine else self._run(branch))
        yield _Fork(strands)

    def _run_producer(self, branch: Step, buffers: list[StreamBuffer]) -> _Run:
        yield from self._run(branch)
        for buffer in buffers:
            buffer.closed = True
            del self._taps[buffer.stream.into]
            self._wake(buffer)

    def _feed(self, node: Node) -> None:
        for _, wire in node.outputs:
            for buffer in list(self._taps.values()):
                if buffer.stream.value == wire:
                    buffer.push(self.values[wire])
                    self._wake(buffer)

    def _wake(self, buffer: StreamBuffer) -> None:
        strand = self._blocked.pop(buffer.stream.into, None)
        if strand is not None:
            self._resume(strand)

    def _case(self, branch: Branch) -> Step:
        value = self.values[branch.on]
        if isinstance(value, Tensor):
            rows = value.reshape(-1).tolist()
            if any(row != rows[0] for row in rows):
                raise InvalidInputError(
                    f"branch on {branch.on!r} got rows that differ ({rows[:8]}); a request takes one case"
                )
            value = rows[0]
        key = str(value).lower() if isinstance(value, bool) else str(value)
        if key not in branch.cases:
            raise WalkError(f"branch on {branch.on!r} got {key!r}, which has no case{did_you_mean(key, branch.cases)}")
        return branch.cases[key]


def _wrong_ports(node: Node, outputs: Mapping[str, Any]) -> ComponentError:
    declared = sorted(port for port, _ in node.outputs)
    return ComponentError(
        f"component {node.component!r} gave {sorted(outputs)}, but node {node.name!r} declares {declared}"
    )


def check_inputs(walk: Walk, values: Mapping[str, Any]) -> int:
    """Returns the request's B.

    Raises:
        InvalidInputError: An input is missing or unknown, or the B of the tensors differ.
    """
    for name in walk.inputs:
        if name not in values:
            raise InvalidInputError(f"walk {walk.name!r} needs input {name!r}; got {sorted(values)}", field=name)
    for name in values:
        if name not in walk.inputs:
            raise InvalidInputError(
                f"walk {walk.name!r} has no input {name!r}{did_you_mean(name, walk.inputs)}", field=name
            )
    sizes: dict[str, int] = {}
    for name, value in values.items():
        if isinstance(value, Tensor):
            if value.ndim == 0:
                raise InvalidInputError(
                    f"input {name!r} is a scalar tensor; give it a leading batch axis: shape [B]", field=name
                )
            sizes[name] = value.shape[0]
    if len(set(sizes.values())) > 1:
        raise InvalidInputError(f"inputs of walk {walk.name!r} differ in their leading batch axis: {sizes}")
    return next(iter(sizes.values()), 1)


__all__ = ["LoopEnd", "LoopStop", "WalkState"]
