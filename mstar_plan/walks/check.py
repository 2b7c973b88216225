"""Checks a walk when it is made: every mistake that the shape of a walk can show is an error with its cure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from mstar_plan.errors import WalkError, did_you_mean
from mstar_plan.walks.check_parallel import check_races, check_streams, streams_into
from mstar_plan.walks.step import (
    Branch,
    Loop,
    Node,
    Parallel,
    Sequential,
    Step,
    every_step,
    need_steps,
    nodes_of,
    reads_of,
)
from mstar_plan.walks.stream import Stream


@dataclass(frozen=True)
class _Scope:
    """What is known where a step stands.

    Attributes:
        known: Wires with a value.
        taken: Wires that some path has written; not all of them have a value on this one.
        local: Those that were written since the innermost loop's body began; only these may be carried in place.
        open: Carried wires that this iteration may still rewrite.
        streams: Streams that a loop here may consume.
    """

    known: frozenset[str]
    taken: frozenset[str]
    local: frozenset[str]
    open: frozenset[str] = frozenset()
    streams: tuple[Stream, ...] = ()

    def after(self, wrote: _Writes) -> _Scope:
        return replace(
            self,
            known=self.known | wrote.definite,
            taken=self.taken | wrote.possible,
            local=self.local | wrote.definite,
            open=self.open - wrote.possible,
        )


@dataclass(frozen=True)
class _Writes:
    """What a step writes: on every path, on some path, and what its loops write for themselves (an index, a slice)."""

    definite: frozenset[str] = frozenset()
    possible: frozenset[str] = frozenset()
    own: frozenset[str] = frozenset()

    @staticmethod
    def union(wrote: Sequence[_Writes]) -> _Writes:
        none: frozenset[str] = frozenset()
        return _Writes(
            none.union(*(w.definite for w in wrote)),
            none.union(*(w.possible for w in wrote)),
            none.union(*(w.own for w in wrote)),
        )


def check_walk(name: str, step: Step, inputs: Sequence[str], outputs: Sequence[str]) -> None:
    """Raises WalkError where the walk cannot run, may never end, or computes what nobody reads."""
    need_steps(f"walk {name!r}", (step,))
    _unique(name, step, inputs, outputs)
    start = frozenset(inputs)
    writes = _check(step, _Scope(start, start, start))
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
    loops = [s.name for s in every_step(step) if isinstance(s, Loop)]
    nodes = [n.name for n in nodes_of(step)]
    for what, names in (("node", nodes), ("loop", loops), ("input", inputs), ("output", outputs)):
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
            wrote = []
            for inner in steps:
                wrote.append(_check(inner, scope))
                scope = scope.after(wrote[-1])
            return _Writes.union(wrote)
        case Parallel():
            return _check_parallel(step, scope)
        case Loop():
            return _check_loop(step, scope)
        case Branch():
            return _check_branch(step, scope)


def _need(scope: _Scope, wire: str, reader: str) -> None:
    if wire in scope.known:
        return
    if wire in scope.taken:
        raise WalkError(
            f"{reader} reads {wire!r}, which is written on some paths only; write it in every case of the branch, and "
            "not just inside a loop over a stream, which may be empty",
            field=wire,
        )
    raise WalkError(
        f"{reader} reads {wire!r}, which nothing before it writes{did_you_mean(wire, scope.known)}", field=wire
    )


def _may_write(scope: _Scope, wire: str, writer: str) -> None:
    if wire in scope.known | scope.taken and wire not in scope.open:
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
    return replace(_Writes.union(wrote), definite=frozenset.intersection(*(w.definite for w in wrote)))


def _check_loop(loop: Loop, scope: _Scope) -> _Writes:
    what = f"loop {loop.name!r}"
    _check_count(loop, scope, what)
    carried = [name for name, _ in loop.carries]
    for name, first in loop.carries:
        _check_carry(name, first, scope, what)
    fresh = _fresh_wires(loop, scope)
    for source, _ in loop.scans:
        _need(scope, source, f"{what} (scan)")
    for name in fresh:
        _may_write(replace(scope, open=frozenset()), name, what)  # not even over a carried wire
        if name in carried or fresh.count(name) > 1:
            raise WalkError(
                f"{what} gives {name!r} two meanings (carry, index, scan, stream); use one name for each", field=name
            )
    inside = frozenset(carried) | frozenset(fresh)
    body = _Scope(scope.known | inside, scope.taken | inside, inside, frozenset(carried), scope.streams)
    wrote = _check(loop.body, body)
    for name in carried:
        if name not in wrote.possible:
            raise WalkError(
                f"{what} carries {name!r}, which its body never writes; write it, or drop it from carry", field=name
            )
    return _after_loop(loop, scope, body, replace(wrote, own=wrote.own | frozenset(fresh)), what)


def _fresh_wires(loop: Loop, scope: _Scope) -> list[str]:
    """Wires that the loop itself writes before each iteration."""
    counts = [s.new for s in scope.streams if s.into == loop.stream]
    return [n for n in (loop.index, loop.stream, *counts, *(s.into for _, s in loop.scans)) if n]


def _check_count(loop: Loop, scope: _Scope, what: str) -> None:
    if loop.stream is not None:
        for name, value in (("times", loop.times), ("limit", loop.limit), ("scan", dict(loop.scan) or None)):
            if value is not None:
                raise WalkError(
                    f"{what} has both {name}={value!r} and stream={loop.stream!r}; the stream alone gives the count",
                    field=name,
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
        _need(scope, loop.times, f"{what} (its count)")
    numbers = {"times": loop.times, "limit": loop.limit}
    for name, number in numbers.items():
        if number is not None and not isinstance(number, str) and (type(number) is not int or number < 1):
            raise WalkError(f"{what} has {name}={number!r}; it needs a whole number of at least 1", field=name)
    if isinstance(loop.times, int) and loop.limit is not None and loop.times > loop.limit:
        raise WalkError(f"{what} has times={loop.times}, which is over its limit={loop.limit}; raise it", field="times")


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
        if name in body.local | wrote.possible | wrote.own or gathered.count(name) > 1:
            raise WalkError(f"{what} gathers into {name!r}, which is written inside too; use another name", field=name)
    carried = frozenset(name for name, _ in loop.carries)
    last = frozenset() if loop.stream else wrote.definite  # a stream may be empty, and then the body never ran
    definite = last | carried | frozenset(gathered)
    return _Writes(definite, definite | wrote.possible, wrote.own)


def _check_parallel(parallel: Parallel, scope: _Scope) -> _Writes:
    check_streams(parallel, scope.known | scope.taken, scope.streams)
    check_races(parallel, scope.known)
    wrote = [
        _check(branch, replace(scope, streams=(*scope.streams, *streams_into(parallel, branch))))
        for branch in parallel.branches
    ]
    seen: set[str] = set()
    for w in wrote:
        both = sorted(seen & (w.possible | w.own))
        if both:
            raise WalkError(f"parallel branches both write {both[0]!r}; give each branch its own name", field=both[0])
        seen |= w.possible | w.own
    return _Writes.union(wrote)
