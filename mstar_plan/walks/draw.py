"""Draws a walk, as an indented text tree or as a Mermaid flow chart."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from mstar_plan.walks.step import Branch, Loop, Node, Pairs, Parallel, Sequential, Step, children, nodes_of
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
    """The walk as a Mermaid flow chart: loops, branches and parallels as boxes, values as arrows.

    A dotted arrow goes to a box that a value steers: a branch by its choice, a loop by its count.
    """
    chart = _Chart(walk)
    lines = ["flowchart LR", "  request([request])", "  reply([reply])", *chart.boxes(walk.step, 1)]
    for edge in walk.edges():
        target = chart.ids[edge.target] if edge.target else "reply"
        lines.append(f"  {chart.ids[edge.source]} -- {_label(edge.value)} --> {target}")
    return "\n".join([*lines, *chart.steered])


class _Chart:
    """Names and numbers of one drawing: an id for every node that Mermaid can read, and the arrows to boxes."""

    def __init__(self, walk: Walk) -> None:
        self.walk = walk
        self.ids: dict[str, str] = {"": "request"}
        self.steered: list[str] = []
        self._count = itertools.count(1)
        for node in walk.nodes:
            made = "n_" + "".join(c if c.isascii() and c.isalnum() else "_" for c in node.name)
            while made in self.ids.values():  # names that differ in punctuation alone
                made += "_"
            self.ids[node.name] = made

    def boxes(self, step: Step, depth: int) -> Iterator[str]:
        match step:
            case Node():
                yield f"{'  ' * depth}{self.ids[step.name]}[{_label(step.name)}]"
            case Sequential(steps):
                for inner in steps:
                    yield from self.boxes(inner, depth)
            case Parallel():
                yield from self._box("parallel", step, None, depth)
            case Loop():
                yield from self._box(_title(step), step, step.times if isinstance(step.times, str) else None, depth)
            case Branch(on):
                yield from self._box(f"branch on {on}", step, on, depth)

    def _box(self, title: str, step: Step, steer: str | None, depth: int) -> Iterator[str]:
        box = f"s{next(self._count)}"
        yield f"{'  ' * depth}subgraph {box}[{_label(title)}]"
        for inner in children(step):
            yield from self.boxes(inner, depth + 1)
        yield f"{'  ' * depth}end"
        if steer is not None:
            inside = {node.name for node in nodes_of(step)}  # Mermaid refuses an arrow from inside a box to the box
            sources = [source for source in self.walk.sources(steer) if source not in inside]
            self.steered += [f"  {self.ids[source]} -. {_label(steer)} .-> {box}" for source in sources]


def _label(text: str) -> str:
    return '"' + text.replace('"', "#quot;") + '"'


def _title(loop: Loop) -> str:
    title = f"{loop.name}: each {loop.stream}" if loop.stream else f"{loop.name} x {loop.times}"
    return f"{title}, until {loop.until}" if loop.until else title
