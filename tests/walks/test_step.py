"""Steps: names become wires, mistakes in them are told at once, and nobody can change a step afterwards."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from mstar_plan.errors import WalkError
from mstar_plan.walks.step import (
    Best,
    Branch,
    Collect,
    Loop,
    Node,
    Parallel,
    Scan,
    Sequential,
    children,
    every_step,
    nodes_of,
    reads_of,
    writes_of,
)
from mstar_plan.walks.stream import Stream
from mstar_plan.walks.walk import Walk

F, G = Node("f", ("x",), ("y",)), Node("g", ("y",), ("z",))


def test_ports_are_wires_unless_a_mapping_says_otherwise() -> None:
    node = Node("encode_goal", {"image": "goal"}, ("latent",), "encode")
    assert (node.inputs, node.outputs, node.component) == ((("image", "goal"),), (("latent", "latent"),), "encode")
    assert F.component == "f"


def test_carry_collect_and_scan_have_short_and_long_forms() -> None:
    short = Loop(F, 3, carry=("x",), collect={"y": "ys"}, scan={"a": "b"})
    long = Loop(F, 3, carry={"x": "x"}, collect={"y": Collect("ys", 1, False)}, scan={"a": Scan("b", 1)})
    assert short.carries == long.carries == (("x", "x"),)
    assert short.collects == long.collects
    assert short.scans == long.scans == (("a", Scan("b", 1)),)


@pytest.mark.parametrize(
    ("make", "pieces"),
    [
        (lambda: Node("f", "xy", ("z",)), ("'xy'", "('xy',)")),
        (lambda: Node("f", ("x",), {"a": "y", "b": "y"}), ("node 'f'", "'y'", "its own wire")),
        (lambda: Node("", ("x",), ("y",)), ("['y']", "no name", "give it one")),
        (lambda: Loop(F, 3, carry="x"), ("'x'", "('x',)")),
        (lambda: Loop("f", 3), ("loop 'loop'", "str", "use Node, Sequential, Parallel, Loop or Branch")),
        (lambda: Sequential(F), ("Sequential", "Node(name='f'", "(step,)")),
        (lambda: Sequential((F, None)), ("Sequential", "NoneType", "no step")),
        (lambda: Parallel(F), ("Parallel", "(step,)")),
        (lambda: Branch("flag", {"true": 3}), ("branch on 'flag'", "int", "no step")),
        (lambda: Sequential((Walk("w", F, ("x",), ("y",)),)), ("Walk", "Walk.inline")),
        (lambda: Collect("ys", 0), ("Collect.dim", "0", "axis 0 is the batch")),
        (lambda: Scan("x", -2), ("Scan.dim", "-2", ">= 1")),
        (lambda: Collect("ys", True), ("Collect.dim", "True")),
    ],
)
def test_a_mistake_is_told_with_its_cure(make: Any, pieces: tuple[str, ...]) -> None:
    with pytest.raises(WalkError) as raised:
        make()
    for piece in pieces:
        assert piece in str(raised.value)


def test_a_step_does_not_change_with_what_it_was_made_of() -> None:
    names, cases, keep = ["x"], {"true": F}, {"y": "top"}
    node, branch, best = Node("n", names, ("y",)), Branch("x", cases), Best("y", keep)
    names.append("q")
    cases["false"] = G
    keep.clear()
    assert node.inputs == (("x", "x"),)
    assert list(branch.cases) == ["true"]
    assert best.keep == {"y": "top"}
    with pytest.raises(FrozenInstanceError):
        node.name = "other"  # type: ignore[misc]


LOOP = Loop(
    Sequential((F, G)),
    "count",
    carry={"x": "start", "z": "z"},
    collect={"y": "ys"},
    scan={"line": "part"},
    until="stop",
    best=Best("cost", {"z": "top"}),
)
WHOLE = Parallel((Branch("flag", {"a": LOOP, "b": Sequential()}), Node("h", ("p",), ("q",))), (Stream("q", "qs"),))


def test_steps_are_found_outermost_first() -> None:
    assert list(every_step(WHOLE))[:3] == [WHOLE, WHOLE.branches[0], LOOP]
    assert [node.name for node in nodes_of(WHOLE)] == ["f", "g", "h"]
    assert children(F) == ()
    assert children(LOOP) == (LOOP.body,)


def test_reads_and_writes_cover_every_kind_of_step() -> None:
    assert reads_of(WHOLE) == {"x", "y", "flag", "start", "line", "count", "stop", "cost", "z", "p", "q"}
    assert writes_of(WHOLE) == {"y", "z", "x", "ys", "top", "q"}


def test_a_carry_in_place_is_no_read_by_itself() -> None:
    assert "v" not in reads_of(Loop(Node("f", (), ("v",)), 2, carry=("v",)))
