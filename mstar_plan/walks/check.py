"""Checks a walk when it is made: every mistake that the shape of a walk can show is an error with its cure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from mstar_plan.errors import WalkError, did_you_mean
from mstar_plan.walks.step import (
    Branch,
    Loop,
    Node,
    Parallel,
    Sequential,
    Step,
    every_step,
    nodes_of,
    reads_of,
    writes_of,
)
from mstar_plan.walks.stream import Stream


@dataclass(frozen=True)
class _Scope:
    """What is known where a step stands.

    Attributes:
        known: Wires with a value.
        local: Those that were written since the innermost loop's body began; only these may be carried in place.
        open: Carried wires that this iteration may still rewrite.
        streams: Streams that a loop here may consume.
    """

    known: frozenset[str]
    local: frozenset[str]
    open: frozenset[str] = frozenset()
    streams: tuple[Stream, ...] = ()

    def after(self, definite: Iterable[str], possible: Iterable[str]) -> _Scope:
        written = frozenset(definite)
        return replace(
            self, known=self.known | written, local=self.local | written, open=self.open - frozenset(possible)
        )


@dataclass(frozen=True)
class _Writes:
    """What a step writes: on every path, and on some path."""

    definite: frozenset[str] = frozenset()
    possible: frozenset[str] = frozenset()


def check_walk(name: str, step: Step, inputs: Sequence[str], outputs: Sequence[str]) -> None:
    """Raises WalkError where the walk cannot run, may never end, or computes what nobody reads."""
    _unique(name, step, inputs, outputs)
    start = frozenset(inputs)
    writes = _check(step, _Scope(start, start))
    known = start | writes.definite
    for wire in outputs:
        if wire not in known:
            raise WalkError(
                f"walk {name!r} returns {wire!r}, which no step writes on every path{did_you_mean(wire, known)}",
                field=wire,
            )
    used = reads_of(step) | set(outputs)
    for wire in inputs:
        if wire not in used:
            raise WalkError(f"walk {name!r} takes input {wire!r}, which no step reads; drop it from inputs", field=wire)
    _unused(step, used)


def _unique(name: str, step: Step, inputs: Sequence[str], outputs: Sequence[str]) -> None:
    for what, names in (("node", [n.name for n in nodes_of(step)]), ("input", inputs), ("output", outputs)):
        twice = [n for n, count in Counter(names).items() if count > 1]
        if twice:
            raise WalkError(f"walk {name!r} has two {what}s named {twice[0]!r}; give each its own name", field=twice[0])


def _unused(step: Step, used: set[str]) -> None:
    for s in every_step(step):
        made: list[tuple[str, str]] = []
        if isinstance(s, Node):
            made = [(f"node {s.name!r}", wire) for _, wire in s.outputs]
        elif isinstance(s, Loop):
            made = [(f"loop {s.name!r} collects into", c.into) for _, c in s.collects]
            made += [(f"loop {s.name!r} keeps the best in", wire) for wire in (s.best.keep.values() if s.best else ())]
        for what, wire in made:
            if wire not in used:
                raise WalkError(
                    f"{what} writes {wire!r}, which nothing reads; read it, return it, or drop it", field=wire
                )


def _check(step: Step, scope: _Scope) -> _Writes:
    match step:
        case Node():
            return _check_node(step, scope)
        case Sequential(steps):
            total = _Writes()
            for inner in steps:
                wrote = _check(inner, scope)
                scope = scope.after(wrote.definite, wrote.possible)
                total = _Writes(total.definite | wrote.definite, total.possible | wrote.possible)
            return total
        case Parallel():
            return _check_parallel(step, scope)
        case Loop():
            return _check_loop(step, scope)
        case Branch():
            return _check_branch(step, scope)


def _need(scope: _Scope, wire: str, reader: str) -> None:
    if wire not in scope.known:
        raise WalkError(
            f"{reader} reads {wire!r}, which nothing before it writes{did_you_mean(wire, scope.known)}", field=wire
        )


def _may_write(scope: _Scope, wire: str, writer: str) -> None:
    if wire in scope.known and wire not in scope.open:
        raise WalkError(
            f"{writer} writes {wire!r}, which is written already; use another name, or let the loop around it carry it",
            field=wire,
        )


def _check_node(node: Node, scope: _Scope) -> _Writes:
    for _, wire in node.inputs:
        _need(scope, wire, f"node {node.name!r}")
    for _, wire in node.outputs:
        _may_write(scope, wire, f"node {node.name!r}")
    written = frozenset(wire for _, wire in node.outputs)
    return _Writes(written, written)


def _check_branch(branch: Branch, scope: _Scope) -> _Writes:
    _need(scope, branch.on, f"branch on {branch.on!r}")
    if not branch.cases:
        raise WalkError(f"branch on {branch.on!r} has no case; name at least one value", field=branch.on)
    for case in branch.cases:
        if not isinstance(case, str):
            raise WalkError(f"branch on {branch.on!r} has case {case!r}; write cases as text: 'true', '3', 'repair'")
    wrote = [_check(case, scope) for case in branch.cases.values()]
    definite = frozenset.intersection(*(w.definite for w in wrote))
    return _Writes(definite, frozenset.union(*(w.possible for w in wrote)))


def _check_loop(loop: Loop, scope: _Scope) -> _Writes:
    what = f"loop {loop.name!r}"
    _check_count(loop, scope, what)
    carried = [name for name, _ in loop.carries]
    for name, first in loop.carries:
        _check_carry(name, first, scope, what)
    fresh = _fresh_wires(loop, scope)
    for source, _ in loop.scans:
        _need(scope, source, f"{what} scans and")
    for name in fresh:
        _may_write(scope, name, what)
        if name in carried or fresh.count(name) > 1:
            raise WalkError(
                f"{what} gives {name!r} two meanings (carry, index, scan, stream); use one name for each", field=name
            )
    inside = frozenset(carried) | frozenset(fresh)
    body = _Scope(scope.known | inside, inside, frozenset(carried), scope.streams)
    wrote = _check(loop.body, body)
    for name in carried:
        if name not in wrote.possible:
            raise WalkError(
                f"{what} carries {name!r}, which its body never writes; write it, or drop it from carry", field=name
            )
    after = _after_loop(loop, scope, body, wrote, what)
    return replace(after, possible=after.possible | frozenset(fresh))


def _fresh_wires(loop: Loop, scope: _Scope) -> list[str]:
    """Wires that the loop itself writes before each iteration."""
    counts = [s.new for s in scope.streams if s.into == loop.stream]
    return [n for n in (loop.index, loop.stream, *counts, *(s.into for _, s in loop.scans)) if n]


def _check_count(loop: Loop, scope: _Scope, what: str) -> None:
    if loop.stream is not None:
        if loop.times is not None:
            raise WalkError(
                f"{what} has both times={loop.times!r} and stream={loop.stream!r}; the stream gives the count"
            )
        if loop.stream not in {s.into for s in scope.streams}:
            raise WalkError(
                f"{what} consumes stream {loop.stream!r}, but no Stream of the Parallel around it goes there",
                field=loop.stream,
            )
        return
    if loop.times is None:
        raise WalkError(
            f"{what} cannot stop: give times (a number or the name of a value) as its bound; until may end it earlier"
        )
    if isinstance(loop.times, str):
        _need(scope, loop.times, f"{what} takes its count and")
    elif isinstance(loop.times, bool) or loop.times < 1:
        raise WalkError(f"{what} has times={loop.times!r}; it needs at least 1", field="times")


def _check_carry(name: str, first: str, scope: _Scope, what: str) -> None:
    if first not in scope.known:
        raise WalkError(
            f"{what} carries {name!r} without a first value: nothing before it writes {first!r}"
            f"{did_you_mean(first, scope.known)}",
            field=name,
        )
    if name != first:
        _may_write(scope, name, f"{what} (carry)")
    elif name not in scope.local and name not in scope.open:
        raise WalkError(
            f"{what} carries {name!r} from outside the loop around it: its second round would start from stale values; "
            f"carry it there too, or start a wire of its own: carry={{'{name}_now': '{name}'}}",
            field=name,
        )


def _after_loop(loop: Loop, scope: _Scope, body: _Scope, wrote: _Writes, what: str) -> _Writes:
    inside = body.known | wrote.definite
    for name, why in [(loop.until, "until"), *((n, "collect") for n, _ in loop.collects)]:
        if name and name not in wrote.definite:
            raise WalkError(f"{what} has {why}={name!r}, which its body does not write on every path", field=name)
    if loop.best:
        for name in (loop.best.by, *loop.best.keep):
            if name not in inside:
                raise WalkError(
                    f"{what} keeps the best {name!r}, which its body does not write on every path", field=name
                )
    gathered = [c.into for _, c in loop.collects] + list(loop.best.keep.values() if loop.best else ())
    for name in gathered:
        _may_write(scope, name, what)
        if name in inside or gathered.count(name) > 1:
            raise WalkError(f"{what} gathers into {name!r}, which its body writes too; use another name", field=name)
    carried = frozenset(name for name, _ in loop.carries)
    last = frozenset() if loop.stream else wrote.definite  # a stream may be empty, and then the body never ran
    definite = last | carried | frozenset(gathered)
    return _Writes(definite, definite | wrote.possible)


def _check_parallel(parallel: Parallel, scope: _Scope) -> _Writes:
    _check_streams(parallel, scope)
    _check_races(parallel, scope)
    wrote = [
        _check(branch, replace(scope, streams=(*scope.streams, *_streams_into(parallel, branch))))
        for branch in parallel.branches
    ]
    seen: set[str] = set()
    for w in wrote:
        both = seen & w.possible
        if both:
            raise WalkError(
                f"parallel branches both write {sorted(both)[0]!r}; give each branch its own name",
                field=sorted(both)[0],
            )
        seen |= w.possible
    return _Writes(frozenset().union(*(w.definite for w in wrote)), frozenset(seen))


def _streams_into(parallel: Parallel, branch: Step) -> list[Stream]:
    loops = {s.stream for s in every_step(branch) if isinstance(s, Loop) and s.stream}
    return [s for s in parallel.streams if s.into in loops]


def _check_streams(parallel: Parallel, scope: _Scope) -> None:
    producers: dict[int, set[int]] = {i: set() for i in range(len(parallel.branches))}
    for stream in parallel.streams:
        made = [
            i for i, b in enumerate(parallel.branches) if stream.value in {w for n in nodes_of(b) for _, w in n.outputs}
        ]
        used = [i for i, b in enumerate(parallel.branches) if stream in _streams_into(parallel, b)]
        loops = [s for b in parallel.branches for s in every_step(b) if isinstance(s, Loop) and s.stream == stream.into]
        if len(made) != 1:
            raise WalkError(
                f"stream of {stream.value!r} has {len(made)} producing branches; a node of exactly one must write it"
            )
        if len(loops) != 1:
            raise WalkError(
                f"stream into {stream.into!r} has {len(loops)} consuming loops; one Loop needs stream={stream.into!r}"
            )
        if made == used:
            raise WalkError(
                f"stream of {stream.value!r} stays in one branch; producer and consumer must be two", field=stream.value
            )
        if stream.into in scope.known:
            raise WalkError(f"stream into {stream.into!r} hides a value of that name; use another", field=stream.into)
        producers[used[0]].add(made[0])
    _check_acyclic(parallel, producers)


def _check_acyclic(parallel: Parallel, producers: dict[int, set[int]]) -> None:
    left = dict(producers)
    while left:
        free = [i for i, waits in left.items() if not waits & left.keys()]
        if not free:
            names = ", ".join(f"{s.value!r} -> {s.into!r}" for s in parallel.streams)
            raise WalkError(f"streams form a cycle ({names}): each branch would wait for the other; cut one of them")
        for i in free:
            del left[i]


def _check_races(parallel: Parallel, scope: _Scope) -> None:
    """A branch may not read what its neighbour writes: the result would depend on who is first."""
    reads = [reads_of(b) - (writes_of(b) - scope.known) for b in parallel.branches]
    writes = [writes_of(b) for b in parallel.branches]
    for i, read in enumerate(reads):
        for j, write in enumerate(writes):
            crossing = sorted(read & write) if i != j else []
            if not crossing:
                continue
            back = sorted(reads[j] & writes[i])
            if back:
                raise WalkError(
                    f"parallel branches form a cycle: one reads {crossing[0]!r}, the other {back[0]!r}, each writing "
                    "the other's; put them in one Sequential",
                    field=crossing[0],
                )
            raise WalkError(
                f"a parallel branch reads {crossing[0]!r}, which its neighbour writes; use a Stream, or a Sequential",
                field=crossing[0],
            )
