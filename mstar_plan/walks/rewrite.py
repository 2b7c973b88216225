"""Rewrites the names in a step: wires, nodes and components; how walks are put inside other walks and graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from mstar_plan.walks.step import Best, Branch, Loop, Node, Parallel, Sequential, Step


def _same(name: str) -> str:
    return name


@dataclass(frozen=True)
class Renaming:
    """What becomes of each kind of name; loops are named like nodes."""

    wire: Callable[[str], str] = _same
    node: Callable[[str], str] = _same
    component: Callable[[str], str] = _same


def rewrite(step: Step, to: Renaming) -> Step:
    """Returns the step with every name replaced."""
    match step:
        case Node():
            return Node(
                to.node(step.name),
                {port: to.wire(wire) for port, wire in step.inputs},
                {port: to.wire(wire) for port, wire in step.outputs},
                to.component(step.component),
            )
        case Sequential(steps):
            return Sequential(tuple(rewrite(s, to) for s in steps))
        case Parallel(branches, streams):
            moved = (
                replace(s, value=to.wire(s.value), into=to.wire(s.into), new=to.wire(s.new) if s.new else None)
                for s in streams
            )
            return Parallel(tuple(rewrite(b, to) for b in branches), tuple(moved))
        case Branch(on, cases):
            return Branch(to.wire(on), {value: rewrite(case, to) for value, case in cases.items()})
        case Loop():
            return _rewrite_loop(step, to)


def _rewrite_loop(loop: Loop, to: Renaming) -> Loop:
    def maybe(name: str | None) -> str | None:
        return to.wire(name) if name else None

    best = Best(to.wire(loop.best.by), _both(loop.best.keep, to.wire)) if loop.best else None
    return Loop(
        rewrite(loop.body, to),
        times=to.wire(loop.times) if isinstance(loop.times, str) else loop.times,
        carry={to.wire(name): to.wire(first) for name, first in loop.carries},
        collect={to.wire(name): replace(c, into=to.wire(c.into)) for name, c in loop.collects},
        scan={to.wire(name): replace(s, into=to.wire(s.into)) for name, s in loop.scans},
        index=maybe(loop.index),
        until=maybe(loop.until),
        best=best,
        stream=maybe(loop.stream),
        anytime=loop.anytime,
        limit=loop.limit,
        name=to.node(loop.name),
    )


def _both(names: Mapping[str, str], wire: Callable[[str], str]) -> dict[str, str]:
    return {wire(source): wire(target) for source, target in names.items()}
