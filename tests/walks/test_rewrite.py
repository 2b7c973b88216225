"""Rewriting reaches every name in every kind of step, and changes nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from toys import FAMILIES
from walk_driver import run, same

from mstar_plan.walks.draw import draw_text
from mstar_plan.walks.rewrite import Renaming, rewrite
from mstar_plan.walks.step import Best, Branch, Collect, Loop, Node, Parallel, Scan, Sequential, Step
from mstar_plan.walks.stream import FixedChunks, Stream
from mstar_plan.walks.walk import Walk

LOOP = Loop(
    Sequential((Node("f", {"port": "x"}, {"out": "y"}, "net"),)),
    "count",
    carry={"x": "start"},
    collect={"y": Collect("ys", 2, concat=True)},
    scan={"line": Scan("part", 3)},
    index="i",
    until="stop",
    best=Best("cost", {"y": "top"}),
    anytime=True,
    limit=7,
    name="search",
)
CONSUMER = Loop(Node("g", ("vs",), ("w",)), stream="vs", name="reading")
WHOLE = Parallel((Branch("flag", {"a": LOOP}), CONSUMER), (Stream("y", "vs", FixedChunks(2), new="fresh"),))


def fields(step: Step) -> Any:
    """A step as plain values that can be compared."""
    match step:
        case Node():
            return ("node", step.name, step.inputs, step.outputs, step.component)
        case Sequential(steps):
            return ("sequential", *map(fields, steps))
        case Parallel(branches, streams):
            return ("parallel", *map(fields, branches), streams)
        case Branch(on, cases):
            return ("branch", on, {value: fields(case) for value, case in cases.items()})
        case Loop():
            best = (step.best.by, dict(step.best.keep)) if step.best else None
            names = (step.times, step.carries, step.collects, step.scans, step.index, step.until, best, step.stream)
            return ("loop", fields(step.body), names, step.anytime, step.limit, step.name)


def prefix(mark: str) -> Callable[[str], str]:
    return lambda name: mark + name


def test_every_name_is_reached_once() -> None:
    done = fields(rewrite(WHOLE, Renaming(prefix("w."), prefix("n."), prefix("c."))))
    loop = (
        "loop",
        ("sequential", ("node", "n.f", (("port", "w.x"),), (("out", "w.y"),), "c.net")),
        (
            "w.count", (("w.x", "w.start"),), (("w.y", Collect("w.ys", 2, concat=True)),),
            (("w.line", Scan("w.part", 3)),), "w.i", "w.stop", ("w.cost", {"w.y": "w.top"}), None,
        ),
        True, 7, "n.search",
    )  # fmt: skip
    reading = ("node", "n.g", (("vs", "w.vs"),), (("w", "w.w"),), "c.g")
    consumer = ("loop", reading, (None, (), (), (), None, None, None, "w.vs"), False, None, "n.reading")
    streams = (Stream("w.y", "w.vs", FixedChunks(2), new="w.fresh"),)
    assert done == ("parallel", ("branch", "w.flag", {"a": loop}), consumer, streams)


def test_rewriting_nothing_gives_an_equal_copy() -> None:
    assert fields(rewrite(WHOLE, Renaming())) == fields(WHOLE)


def test_there_and_back_is_where_it_was() -> None:
    there = rewrite(WHOLE, Renaming(prefix("w."), prefix("n."), prefix("c.")))
    back = rewrite(there, Renaming(*[lambda name: name[2:]] * 3))
    assert fields(back) == fields(WHOLE)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_rewritten_family_draws_and_runs_alike(name: str) -> None:
    toy = FAMILIES[name]()
    copy = Walk(toy.walk.name, rewrite(toy.walk.step, Renaming()), toy.walk.inputs, toy.walk.outputs)
    assert draw_text(copy) == draw_text(toy.walk)
    values = toy.requests[0]
    assert same(run(toy.graph, copy, values).outputs, run(toy.graph, toy.walk, values).outputs)
