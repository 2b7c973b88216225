"""Random damage to walks that were put together rightly: what a slip of the pen could make of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from walk_strategy import INPUTS

from mstar_plan.walks.rewrite import Renaming, rewrite
from mstar_plan.walks.step import (
    Best,
    Branch,
    Loop,
    Node,
    Parallel,
    Sequential,
    Step,
    children,
    every_step,
    reads_of,
    writes_of,
)
from mstar_plan.walks.stream import FixedChunks, LeftContext, SlidingWindow, Stream
from mstar_plan.walks.walk import Walk


def damaged(walk: Walk, rng: random.Random) -> tuple[Step, list[str], list[str]]:
    """A step, inputs and outputs: the walk's with one to three slips in them."""
    step, inputs, outputs = walk.step, list(walk.inputs), list(walk.outputs)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        wires = _wires(step)
        if rng.random() < 0.15:
            _slip(rng.choice([inputs, outputs]), rng.choice([*wires, *INPUTS, "nowhere"]), rng)
        else:
            target = rng.choice(list(every_step(step)))
            step = _put(step, target, _slips(target, step, wires, rng))
    return step, inputs, outputs


def _wires(step: Step) -> list[str]:
    own = {name for s in every_step(step) if isinstance(s, Loop) for name in (s.index, s.stream)}
    return sorted(reads_of(step) | writes_of(step) | {name for name in own if name}) or ["nowhere"]


def _put(step: Step, target: Step, new: Step) -> Step:
    """`step` with `target` replaced."""
    if step is target:
        return new
    match step:
        case Node():
            return step
        case Loop():
            return replace(step, body=_put(step.body, target, new))
        case Branch():
            return replace(step, cases={value: _put(case, target, new) for value, case in step.cases.items()})
        case Sequential():
            return Sequential(tuple(_put(s, target, new) for s in step.steps))
        case Parallel():
            return Parallel(tuple(_put(s, target, new) for s in step.branches), step.streams)


def _slip(names: list[str], wire: str, rng: random.Random) -> None:
    """Drops, adds or changes one name of a list."""
    at = rng.randrange(len(names) + 1)
    names[at : at + rng.randint(0, 1)] = [wire] * rng.randint(0, 1)


def _slips(target: Step, whole: Step, wires: Sequence[str], rng: random.Random) -> Step:
    if rng.random() < 0.3:
        return rng.choice(_anywhere(target, whole, wires, rng))()
    match target:
        case Node():
            return _slip_node(target, whole, wires, rng)
        case Loop():
            return _slip_loop(target, wires, rng)
        case Branch() if target.cases:
            cases = list(target.cases.items())
            name, case = rng.choice(cases)
            changed = rng.choice(
                [{}, {name: Sequential()}, {name.upper(): case}, dict(cases[1:]), dict(reversed(cases))]
            )
            return Branch(rng.choice([target.on, target.on, *wires]), {**dict(rng.choice([cases, []])), **changed})
        case Branch():
            return Branch("word", {"a": Sequential()})
        case _:
            return _slip_list(target, wires, rng)


def _anywhere(target: Step, whole: Step, wires: Sequence[str], rng: random.Random) -> list[Callable[[], Step]]:
    wire, other = rng.choice(wires), rng.choice(wires)
    return [
        Sequential,
        *[lambda: rewrite(target, Renaming(wire=lambda name: wire if name == other else name))] * 4,
        lambda: rng.choice(list(every_step(whole))),
        lambda: Loop(target, rng.choice([1, 2, "count", wire]), name=f"extra{rng.randrange(10**6)}"),
        lambda: Loop(target, 2, carry=(wire,), name=f"extra{rng.randrange(10**6)}"),
        lambda: Branch("word", {"a": target, "b": rng.choice([target, Sequential()])}),
        lambda: Parallel((target, rng.choice([Sequential(), Parallel(())]))),
    ]


def _slip_node(node: Node, whole: Step, wires: Sequence[str], rng: random.Random) -> Node:
    reads, writes = dict(node.inputs), dict(node.outputs)
    side = rng.choice([reads, writes])
    if side and rng.random() < 0.7:
        side[rng.choice(list(side))] = rng.choice([*wires, "nowhere"])
    elif rng.random() < 0.5:
        side["extra"] = rng.choice([*wires, "elsewhere"])
    else:
        side.clear()
    names = [s.name for s in every_step(whole) if isinstance(s, Node)]
    name = rng.choice(names) if rng.random() < 0.05 else node.name
    component = rng.choice(["mix", "stop", "ask", "turn", "score"]) if rng.random() < 0.2 else node.component
    return Node(name, reads, writes, component)


def _slip_list(target: Sequential | Parallel, wires: Sequence[str], rng: random.Random) -> Step:
    steps = list(children(target))
    streams = list(target.streams) if isinstance(target, Parallel) else []
    match rng.randrange(6):
        case 0 if steps:
            steps.pop(rng.randrange(len(steps)))
        case 1 if steps:
            steps.append(rng.choice(steps))
        case 2:
            rng.shuffle(steps)
        case 3:
            return Parallel(tuple(steps), tuple(streams)) if rng.random() < 0.5 else Sequential(tuple(steps))
        case 4 if streams:
            streams[rng.randrange(len(streams))] = _slip_stream(rng.choice(streams), wires, rng)
        case _:
            streams = streams[1:] if rng.random() < 0.5 else [*streams, *streams[:1]]
    return Sequential(tuple(steps)) if isinstance(target, Sequential) else Parallel(tuple(steps), tuple(streams))


def _slip_stream(stream: Stream, wires: Sequence[str], rng: random.Random) -> Stream:
    policy = rng.choice([FixedChunks(1), FixedChunks(4), SlidingWindow(3, 2), LeftContext(1, 3)])
    changes: list[dict[str, Any]] = [{"chunks": policy}, {"value": rng.choice(wires)}, {"into": rng.choice(wires)}]
    return replace(stream, **rng.choice([*changes, {"new": None}, {"new": rng.choice(wires)}]))


def _slip_loop(loop: Loop, wires: Sequence[str], rng: random.Random) -> Loop:
    wire, other = rng.choice(wires), rng.choice([*wires, "nowhere"])
    carry = dict(loop.carries)
    gone = rng.choice(list(carry)) if carry else ""
    changes: list[dict[str, Any]] = [
        {"times": rng.choice([None, 0, 1, 3, True, 1.5, "count", "dial", wire])},
        {"carry": {name: first for name, first in carry.items() if name != gone}},
        {"carry": {**carry, wire: other}},
        {"carry": (*carry, other)},
        {"carry": {name: name for name in carry}},
        {"collect": {}},
        {"collect": {**loop.collect, wire: other}},
        {"scan": {}},
        {"scan": {**loop.scan, wire: other}},
        {"index": rng.choice([None, other])},
        {"until": rng.choice([None, wire])},
        {"best": rng.choice([None, Best(wire, {wire: other}), Best(other, {other: "nowhere"})])},
        {"stream": rng.choice([None, wire])},
        {"limit": rng.choice([None, 1, 2])},
        {"name": "loop1"},
    ]
    return replace(loop, **rng.choice(changes))
