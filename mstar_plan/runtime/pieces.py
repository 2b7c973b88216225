"""Cuts a walk where it changes groups: each piece stays on one worker, and says which values cross its borders."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from mstar_plan.walks.step import Branch, Loop, Node, Parallel, Sequential, Step, children, nodes_of, writes_of
from mstar_plan.walks.walk import Walk


@dataclass(frozen=True)
class Piece:
    """A maximal part of a walk that stays on one worker.

    Attributes:
        group: Who runs it.
        nodes: Its nodes, in order of writing.
        receives: Wires whose values come from outside: other pieces, the request, an earlier round of a loop around it.
        sends: Wires whose values are needed outside, likewise.
    """

    group: str
    nodes: tuple[str, ...]
    receives: tuple[str, ...]
    sends: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class _Run:
    group: str
    steps: tuple[Step, ...]
    open: bool = True  # may grow together with its neighbours


def cut_step(walk: Walk, groups: Mapping[str, str]) -> list[Piece]:
    """The pieces of a walk, in order of writing.

    Args:
        walk: The walk.
        groups: {node: group}.
    """
    runs = _runs(walk.step, groups)
    receives = [_reads(Sequential(run.steps), set()) for run in runs]
    inside = {id(step) for run in runs for step in run.steps}
    needed = set(walk.outputs).union(*receives, _reads_between(walk.step, inside))
    return [
        Piece(
            run.group,
            tuple(node.name for step in run.steps for node in nodes_of(step)),
            tuple(sorted(read)),
            tuple(sorted(needed & writes_of(Sequential(run.steps)))),
        )
        for run, read in zip(runs, receives, strict=True)
    ]


def _runs(step: Step, groups: Mapping[str, str]) -> list[_Run]:
    """A step whose nodes share a group is one run; neighbours in a Sequential grow together.

    What is inside a loop, branch or parallel of several groups stays apart from what is outside: it is entered again
    and again, or not at all, or at the same time as others.
    """
    used = {groups[node.name] for node in nodes_of(step)}
    if not used:
        return []
    if len(used) == 1:
        return [_Run(used.pop(), (step,))]
    inner = [run for child in children(step) for run in _runs(child, groups)]
    if not isinstance(step, Sequential):
        return [_Run(run.group, run.steps, open=False) for run in inner]
    grown: list[_Run] = []
    for run in inner:
        last = grown[-1] if grown else None
        if last is not None and last.open and run.open and last.group == run.group:
            grown[-1] = _Run(run.group, last.steps + run.steps)
        else:
            grown.append(run)
    return grown


def _reads(step: Step, known: set[str]) -> set[str]:
    """Wires that a step reads without having written them before."""
    match step:
        case Node():
            return {wire for _, wire in step.inputs} - known
        case Sequential(steps):
            return _reads_in_turn(steps, known)
        case Parallel(branches, streams):
            own = {stream.into for stream in streams} | {stream.new for stream in streams if stream.new}
            return set().union(*(_reads(branch, known | own) for branch in branches))
        case Branch(on, cases):
            return ({on} - known).union(*(_reads(case, known) for case in cases.values()))
        case Loop():
            fresh = {name for name, _ in step.carries} | {scan.into for _, scan in step.scans}
            fresh |= {step.index} if step.index else set()
            return (_loop_reads(step) - known) | _reads(step.body, known | fresh)


def _reads_in_turn(steps: Iterable[Step], known: set[str]) -> set[str]:
    known, read = set(known), set()
    for step in steps:
        read |= _reads(step, known)
        known |= writes_of(step)
    return read


def _loop_reads(loop: Loop) -> set[str]:
    """Wires that a loop reads before its first iteration."""
    names = {first for _, first in loop.carries} | {source for source, _ in loop.scans}
    return names | ({loop.times} if isinstance(loop.times, str) else set()) | ({loop.stream} if loop.stream else set())


def _reads_between(step: Step, inside: set[int]) -> set[str]:
    """Wires that the loops, branches and streams around the pieces read."""
    names: set[str] = set()
    for s in _around(step, inside):
        match s:
            case Loop():
                names |= _loop_reads(s) | {name for name, _ in s.collects} | ({s.until} if s.until else set())
                names |= {s.best.by, *s.best.keep} if s.best else set()
            case Branch():
                names.add(s.on)
            case Parallel():
                names |= {stream.value for stream in s.streams}
            case _:
                pass
    return names


def _around(step: Step, inside: set[int]) -> Iterator[Step]:
    if id(step) not in inside:
        yield step
        for child in children(step):
            yield from _around(child, inside)
