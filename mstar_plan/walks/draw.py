"""Draws a walk, as an indented text tree or as a Mermaid flow chart."""

from __future__ import annotations

from collections.abc import Iterator

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
    lines = ["flowchart LR", "  request([request])", "  reply([reply])"]
    lines += _boxes(walk.step, 1, [0])
    for edge in walk.edges():
        source = _id(edge.source) if edge.source else "request"
        target = _id(edge.target) if edge.target else "reply"
        lines.append(f'  {source} -- "{edge.value}" --> {target}')
    return "\n".join(lines)


def _id(name: str) -> str:
    return "n_" + "".join(c if c.isalnum() else "_" for c in name)


def _boxes(step: Step, depth: int, count: list[int]) -> Iterator[str]:
    pad = "  " * depth
    match step:
        case Node():
            yield f'{pad}{_id(step.name)}["{step.name}"]'
        case Sequential(steps):
            for inner in steps:
                yield from _boxes(inner, depth, count)
        case Parallel(branches):
            yield from _box("parallel", list(branches), depth, count)
        case Loop():
            yield from _box(_loop_title(step), [step.body], depth, count)
        case Branch(on, cases):
            yield from _box(f"branch on {on}", list(cases.values()), depth, count)


def _loop_title(loop: Loop) -> str:
    return f"{loop.name}: each {loop.stream}" if loop.stream else f"{loop.name} x {loop.times}"


def _box(title: str, inside: list[Step], depth: int, count: list[int]) -> Iterator[str]:
    pad = "  " * depth
    count[0] += 1
    yield f'{pad}subgraph s{count[0]}["{title}"]'
    for step in inside:
        yield from _boxes(step, depth + 1, count)
    yield f"{pad}end"
