"""WalkState: where one request stands on its walk. The only mutable thing in this room.

Every step that is under way is a generator; steps inside steps make a stack of them (a *strand*), of which only the
innermost runs. A strand stops at a node until the node is completed, at a Parallel until its branches have ended, and
at a stream until there is a chunk. So the order in which a runtime completes the ready nodes is free, and the values do
not depend on it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from types import GeneratorType
from typing import Any, NoReturn

import torch
from torch import Tensor

from mstar_plan.errors import ComponentError, InvalidInputError, WalkError, did_you_mean
from mstar_plan.walks.batch import Batch
from mstar_plan.walks.check_parallel import streams_into, streams_of
from mstar_plan.walks.component import ComputePolicy, release
from mstar_plan.walks.loop_run import LoopEnd, LoopRun, LoopStop
from mstar_plan.walks.step import Branch, Loop, Node, Parallel, Sequential, Step
from mstar_plan.walks.stream import StreamBuffer
from mstar_plan.walks.walk import Walk


@dataclass(frozen=True, eq=False)
class _Fork:
    """A strand waits until these have ended."""

    strands: Sequence[_Run]


_Wait = Node | StreamBuffer | _Fork
_Run = Generator[Any, None, None]  # yields what its strand waits for, or a step inside that is to be run first
OnWrite = Callable[[str, Any], None]


class _Strand:
    __slots__ = ("parent", "pending", "stack")

    def __init__(self, run: _Run, parent: _Strand | None) -> None:
        self.stack, self.parent, self.pending = [run], parent, 0

    def advance(self) -> _Wait | None:
        """Goes on to what it waits for next; None at its end."""
        return self.after(next(self.stack[-1], None))

    def after(self, found: Any) -> _Wait | None:
        """Goes on from what its innermost step has given."""
        stack = self.stack
        while True:
            if type(found) is GeneratorType:
                stack.append(found)
            elif found is None:
                stack.pop()
                if not stack:
                    return None
            else:
                wait: _Wait = found
                return wait
            found = next(stack[-1], None)


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
        self.device = next((v.device for v in values.values() if isinstance(v, Tensor)), _CPU)
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
        values, read = self.values, {}
        for port, wire in node.inputs:
            read[port] = values[wire]
        return Batch(read, self.size)

    def complete(self, node: Node, outputs: Mapping[str, Any]) -> None:
        """Takes a ready node's answer, by port, and goes on to the next nodes.

        Raises:
            ComponentError: The answer lacks a port that the node declares, or has one more.
        """
        _, strand = self._waiting.pop(node.name)
        self._write(node, outputs)
        if self._taps:
            self._feed(node)
        self._resume(strand)

    def run_alone(self, call: Callable[[Node, Batch], Mapping[str, Any] | None]) -> None:
        """Runs the ready node through `call`, then the next one, and so on, while exactly one node is ready.

        It gives what `ready`, `inputs_of` and `complete` in turn give, for a fraction of their time.

        Args:
            call: Runs a node on its inputs; None ends this and leaves the node ready.

        Raises:
            ComponentError: See `complete`. The state is of no use afterwards.
        """
        while len(self._waiting) == 1:
            [(node, strand)] = self._waiting.values()
            wait: _Wait | None = node
            while type(wait) is Node:
                node = wait
                outputs = call(node, self.inputs_of(node))
                if outputs is None:
                    self._waiting = {node.name: (node, strand)}
                    return
                if self._taps:  # this answer may wake another strand
                    self._waiting = {node.name: (node, strand)}
                    self.complete(node, outputs)
                    break
                self._write(node, outputs)
                wait = next(strand.stack[-1], None)
                if type(wait) is not Node:
                    wait = strand.after(wait)
            else:
                self._waiting.clear()
                self._file(strand, wait)

    def outputs(self) -> dict[str, Any]:
        """The walk's outputs, once it has finished."""
        assert self.finished, "outputs() before the walk has finished"
        return {name: self.values[name] for name in self.walk.outputs}

    def release(self) -> None:
        """Lets go of every value of a request that has ended, those `Owned` first; nothing is ready afterwards.

        The strands refer back to the state, so that its values would otherwise wait for the garbage collector.
        """
        release(self.values.values())
        for held in (self._waiting, self._blocked, self._taps, self._sources, self.values):
            held.clear()

    def _write(self, node: Node, outputs: Mapping[str, Any]) -> None:
        values = self.values
        try:
            for port, wire in node.outputs:
                values[wire] = outputs[port]
        except (KeyError, TypeError, IndexError):
            raise _wrong_ports(node, outputs) from None
        if len(outputs) != len(node.outputs):
            raise _wrong_ports(node, outputs)
        if self._on_write is not None:
            for _, wire in node.outputs:
                self._on_write(wire, values[wire])

    def _resume(self, strand: _Strand) -> None:
        self._file(strand, strand.advance())

    def _file(self, strand: _Strand, wait: _Wait | None) -> None:
        """Notes what a strand waits for; its branches start, and where the last one has ended, it goes on."""
        due: list[_Strand] = []  # no recursion: a loop may go through any number of branches that have nothing to do
        while True:
            if type(wait) is Node:
                self._waiting[wait.name] = (wait, strand)
            elif type(wait) is _Fork:
                strand.pending = len(wait.strands)
                due += [_Strand(run, strand) for run in reversed(wait.strands)] or [strand]
            elif type(wait) is StreamBuffer:
                self._blocked[wait.stream.into] = strand
            elif strand.parent is None:
                self.finished = True
            else:
                strand.parent.pending -= 1
                if not strand.parent.pending:
                    due.append(strand.parent)
            if not due:
                return
            strand = due.pop()
            wait = strand.advance()

    def _run(self, step: Step) -> _Run:
        match step:
            case Node():
                return self._run_steps((step,))
            case Sequential(steps):
                return self._run_steps(steps)
            case Loop():
                return self._run_loop(step)
            case Parallel():
                return self._run_parallel(step)
            case Branch():
                return self._run(self._case(step))

    def _run_steps(self, steps: Sequence[Step]) -> _Run:
        for step in steps:
            yield step if type(step) is Node else self._run(step)

    def _run_loop(self, loop: Loop) -> _Run:
        run = LoopRun(loop, self)
        body = loop.body
        if run.steady:
            for _ in run.rounds():
                yield body if type(body) is Node else self._run(body)
        while not run.steady:
            if loop.stream is not None:
                buffer = self._sources[loop.stream]
                while not buffer.has_chunk() and not buffer.closed:
                    yield buffer
                if not buffer.has_chunk():
                    run.stop = LoopStop.STREAM
                    break
            if not run.goes_on():
                break
            if loop.stream is not None:
                run.take_chunk(buffer)
            run.begin()
            yield body if type(body) is Node else self._run(body)
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
            self._taps[stream.into] = buffer
        streaming = bool(parallel.streams)
        yield _Fork([self._run_streaming(parallel, b) if streaming else self._run(b) for b in parallel.branches])
        for stream in parallel.streams:
            del self._sources[stream.into]

    def _run_streaming(self, parallel: Parallel, branch: Step) -> _Run:
        """A branch that ends the streams that it produces, and lets go of those that it will consume no more."""
        yield self._run(branch)
        for stream in streams_into(parallel, branch):
            self._taps.pop(stream.into, None)
            self._sources[stream.into].clear()
        for stream in streams_of(parallel, branch):
            self._taps.pop(stream.into, None)
            self._sources[stream.into].closed = True
            self._wake(self._sources[stream.into])

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
            if not rows or any(row != rows[0] for row in rows):
                raise InvalidInputError(
                    f"branch on {branch.on!r} got no row, or rows that differ ({rows[:8]}); a request takes one case",
                    field=branch.on,
                )
            value = rows[0]
        key = str(value).lower() if isinstance(value, bool) else str(value)
        if key not in branch.cases:
            raise WalkError(
                f"branch on {branch.on!r} got {key!r}, which has no case{did_you_mean(key, branch.cases)}",
                field=branch.on,
            )
        return branch.cases[key]


_CPU = torch.device("cpu")


def _wrong_ports(node: Node, outputs: Mapping[str, Any]) -> ComponentError:
    declared = sorted(port for port, _ in node.outputs)
    gave = sorted(outputs) if isinstance(outputs, Mapping) else f"a {type(outputs).__name__}, no mapping of its ports"
    return ComponentError(f"component {node.component!r} gave {gave}, but node {node.name!r} declares {declared}")


def check_inputs(walk: Walk, values: Mapping[str, Any]) -> int:
    """Returns the request's B.

    Raises:
        InvalidInputError: An input is missing or unknown, or the B of the tensors differ, or are 0.
    """
    if values.keys() != set(walk.inputs):
        _refuse_names(walk, values)
    sizes: dict[str, int] = {}
    for name, value in values.items():
        if isinstance(value, Tensor):
            if value.ndim == 0:
                raise InvalidInputError(
                    f"input {name!r} is a scalar tensor; give it a leading batch axis: shape [B]", field=name
                )
            sizes[name] = value.shape[0]
            if not sizes[name]:
                raise InvalidInputError(
                    f"input {name!r} has shape {tuple(value.shape)}, no row at all; send at least one", field=name
                )
    if len(set(sizes.values())) > 1:
        raise InvalidInputError(
            f"inputs of walk {walk.name!r} differ in their leading batch axis: {sizes}; send as many rows of each"
        )
    return next(iter(sizes.values()), 1)


def _refuse_names(walk: Walk, values: Mapping[str, Any]) -> NoReturn:
    for name in walk.inputs:
        if name not in values:
            raise InvalidInputError(f"walk {walk.name!r} needs input {name!r}; got {sorted(values)}", field=name)
    name = next(name for name in values if name not in walk.inputs)
    raise InvalidInputError(f"walk {walk.name!r} has no input {name!r}{did_you_mean(name, walk.inputs)}", field=name)


__all__ = ["LoopEnd", "LoopStop", "WalkState"]
