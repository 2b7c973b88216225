"""Draws a walk, as an indented text tree or as a Mermaid flow chart."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from mstar_plan.walks.step import Branch, Loop, Node, Pairs, Parallel, Sequential, Step
from mstar_plan.walks.walk import Walk


def draw_text(walk: Walk) -> str:
    """The walk as an indented tree: who reads and writes what, and what repeats until when."""
    head = f"{walk.name}({', '.join(walk.inputs)}) -> {', '.join(walk.outputs)}"
    return "\n".join([head, *_lines(walk.step, 1)])


def _names(pairs: Pairs) -> str:
    return ", ".join(wire if port == wire else f"{port}={wire}" for port, wire in pairs)


def _lines(step: Step, depth: int) -> Iterator[str]:
    pad = "  " * depth
    match step:
        case Node():
            via = f" [{step.component}]" if step.component != step.name else ""
            yield f"{pad}{step.name}{via}({_names(step.inputs)}) -> {_names(step.outputs)}"
        case Sequential(steps):
            for inner in steps:
                yield from _lines(inner, depth)
        case Parallel(branches, streams):
            yield f"{pad}parallel" + "".join(f", stream {s.value} -> {s.into} in {s.chunks}" for s in streams)
            for i, branch in enumerate(branches):
                yield f"{pad}| branch {i + 1}"
                yield from _lines(branch, depth + 2)
        case Loop():
            yield pad + _loop_head(step)
            yield from _lines(step.body, depth + 1)
        case Branch(on, cases):
            yield f"{pad}branch on {on}"
            for value, case in cases.items():
                yield f"{pad}| {value}"
                yield from _lines(case, depth + 2)


def _loop_head(loop: Loop) -> str:
    words = [f"loop {loop.name} x {loop.times}" if loop.stream is None else f"loop {loop.name} for each {loop.stream}"]
    if loop.until:
        words.append(f"until {loop.until}")
    if loop.anytime:
        words.append("or out of time")
    if loop.carries:
        words.append(f"carry {_names(loop.carries)}")
    words += [f"each {s.into} of {name}" for name, s in loop.scans]
    words += [f"collect {name} in {c.into}" for name, c in loop.collects]
    if loop.best:
        words.append(f"keep the best {', '.join(loop.best.keep.values())} by {loop.best.by}")
    return "; ".join(words)


def draw_mermaid(walk: Walk) -> str:
    """The walk as a Mermaid flow chart: loops, branches and parallels as boxes, values as arrows."""
    ids = _ids(walk)
    lines = ["flowchart LR", "  request([request])", "  reply([reply])"]
    lines += _boxes(walk.step, 1, ids, itertools.count(1))
    for edge in walk.edges():
        source = ids[edge.source] if edge.source else "request"
        target = ids[edge.target] if edge.target else "reply"
        lines.append(f"  {source} -- {_label(edge.value)} --> {target}")
    return "\n".join(lines)


def _ids(walk: Walk) -> dict[str, str]:
    """An id for every node that Mermaid can read, even where names differ in punctuation alone."""
    ids: dict[str, str] = {}
    for node in walk.nodes:
        made = "n_" + "".join(c if c.isascii() and c.isalnum() else "_" for c in node.name)
        while made in ids.values():
            made += "_"
        ids[node.name] = made
    return ids


def _label(text: str) -> str:
    return '"' + text.replace('"', "#quot;") + '"'


def _boxes(step: Step, depth: int, ids: Mapping[str, str], count: Iterator[int]) -> Iterator[str]:
    pad = "  " * depth
    match step:
        case Node():
            yield f"{pad}{ids[step.name]}[{_label(step.name)}]"
        case Sequential(steps):
            for inner in steps:
                yield from _boxes(inner, depth, ids, count)
        case Parallel(branches):
            yield from _box("parallel", branches, depth, ids, count)
        case Loop():
            yield from _box(_loop_title(step), (step.body,), depth, ids, count)
        case Branch(on, cases):
            yield from _box(f"branch on {on}", tuple(cases.values()), depth, ids, count)


def _loop_title(loop: Loop) -> str:
    return f"{loop.name}: each {loop.stream}" if loop.stream else f"{loop.name} x {loop.times}"


def _box(
    title: str, inside: tuple[Step, ...], depth: int, ids: Mapping[str, str], count: Iterator[int]
) -> Iterator[str]:
    pad = "  " * depth
    yield f"{pad}subgraph s{next(count)}[{_label(title)}]"
    for step in inside:
        yield from _boxes(step, depth + 1, ids, count)
    yield f"{pad}end"
