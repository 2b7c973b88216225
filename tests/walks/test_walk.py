"""Walks: edges derived from names, and a walk inside another one."""

from __future__ import annotations

import pytest
import torch
from toys import FAMILIES
from walk_driver import run, same

from mstar_plan.errors import WalkError
from mstar_plan.walks.step import Best, Branch, Loop, Node, Parallel, Scan, Sequential, Step, every_step, nodes_of
from mstar_plan.walks.stream import Stream
from mstar_plan.walks.walk import Edge, Walk


def edges(step: Step, inputs: str, outputs: str) -> set[tuple[str, str, str]]:
    made = Walk("w", step, tuple(inputs.split()), tuple(outputs.split())).edges()
    assert len(set(made)) == len(made)
    return {(e.source, e.value, e.target) for e in made}


def test_edges_follow_names_from_the_request_to_the_reply() -> None:
    step = Sequential((Node("f", ("x",), ("y", "z")), Node("g", {"in": "y"}, ("out",))))
    assert edges(step, "x", "z out") == {("", "x", "f"), ("f", "y", "g"), ("f", "z", ""), ("g", "out", "")}


def test_an_input_may_go_straight_to_the_reply() -> None:
    assert Walk("w", Sequential(), ("x",), ("x",)).edges() == [Edge("", "x", "")]


def test_a_carry_comes_from_its_first_value_and_from_the_round_before() -> None:
    loop = Loop(Node("g", ("c",), ("c",)), 3, carry={"c": "y"})
    assert edges(Sequential((Node("f", ("x",), ("y",)), loop)), "x", "c") == {
        ("", "x", "f"), ("f", "c", "g"), ("g", "c", "g"), ("f", "c", ""), ("g", "c", ""),
    }  # fmt: skip


def test_first_values_are_followed_through_nested_loops() -> None:
    inner = Loop(Node("g", ("a",), ("a",)), 2, carry={"a": "b"}, name="in")
    outer = Loop(Sequential((inner, Node("f", ("a",), ("b",)))), 2, carry={"b": "x"})
    assert {("", "a", "g"), ("f", "a", "g"), ("g", "a", "g"), ("g", "a", "f")} <= edges(outer, "x", "b")
    scanning = Loop(
        Loop(Node("g", ("s", "b"), ("b",)), 2, scan={"b": Scan("s")}, carry=("b",), name="in"), 2, carry={"b": "x"}
    )
    assert ("", "s", "g") in edges(scanning, "x", "b")


def test_what_loops_and_streams_pass_on_comes_from_the_node_that_wrote_it() -> None:
    loop = Loop(
        Node("f", ("part", "c"), ("c", "cost")), 3, carry={"c": "x"}, scan={"line": "part"}, collect={"c": "cs"},
        best=Best("cost", {"cost": "low"}),
    )  # fmt: skip
    got = edges(loop, "x line", "cs low")
    assert {("", "part", "f"), ("", "c", "f"), ("f", "c", "f"), ("f", "cs", ""), ("f", "low", "")} == got
    step = Parallel(
        (Loop(Node("a", ("x",), ("v",)), 2, name="a"), Loop(Node("b", ("vs", "p"), ("p",)), stream="vs", carry=("p",))),
        (Stream("v", "vs"),),
    )
    assert ("a", "vs", "b") in edges(step, "x p", "p")


@pytest.mark.parametrize("name", FAMILIES)
def test_every_node_of_every_family_is_on_a_way_from_the_request_to_the_reply(name: str) -> None:
    walk = FAMILIES[name]().walk
    steered = [(s.on, n) for s in every_step(walk.step) if isinstance(s, Branch) for n in nodes_of(s)]
    arrows = walk.edges() + [Edge(source, on, n.name) for on, n in steered for source in walk.sources(on)]
    for start, here, there in (("", "source", "target"), ("", "target", "source")):
        reached, todo = {start}, [start]
        while todo:
            at = todo.pop()
            new = {getattr(e, there) for e in arrows if getattr(e, here) == at} - reached
            reached |= new
            todo += new
        assert {node.name for node in walk.nodes} <= reached


# --- a walk inside a walk ---------------------------------------------------------------------------------------------


def grow(name: str = "grow") -> Walk:
    loop = Loop(Node("double", ("x",), ("x",)), "n", carry={"x": "start"}, collect={"x": "path"}, name="growing")
    return Walk(name, loop, ("start", "n"), ("x", "path"))


DOUBLE = {"double": lambda b: {"x": b["x"] * 2}, "add": lambda b: {"y": b["a"] + b["b"]}}


def test_inline_prefixes_nodes_loops_and_wires_but_not_components() -> None:
    twice = Sequential(
        (
            grow().inline("one", {"start": "seed", "n": "n"}),
            grow().inline("two", {"start": "one.x", "n": "n", "path": "path"}),
            Node("add", {"a": "one.x", "b": "two.x"}, ("y",)),
            Node("use", {"a": "one.path", "b": "path"}, {"y": "paths"}, "add"),
        )
    )
    walk = Walk("twice", twice, ("seed", "n"), ("y", "paths"))
    assert [n.name for n in walk.nodes] == ["one.double", "two.double", "add", "use"]
    done = run(DOUBLE, walk, {"seed": torch.ones(1), "n": 2})
    assert done.outputs["y"].item() == 4 + 16
    assert done.outputs["paths"].tolist() == [[2 + 8, 4 + 16]]
    assert set(done.state.loop_ends) == {"one.growing", "two.growing"}


def test_inline_knows_its_wires() -> None:
    with pytest.raises(WalkError, match=r"walk 'grow' has no wire 'strat' to rename; did you mean 'start'\?"):
        grow().inline("p", {"strat": "x"})


def test_an_inlined_walk_without_its_input_is_caught_by_the_walk_around_it() -> None:
    with pytest.raises(WalkError, match=r"loop 'p.growing' \(its count\) reads 'p.n', which nothing before it"):
        Walk("w", grow().inline("p", {"start": "x"}), ("x",), ("p.x",))


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_gives_the_same_inside_another_walk(name: str) -> None:
    toy = FAMILIES[name]()
    inputs = {wire: f"my_{wire}" for wire in toy.walk.inputs}
    outputs = {wire: f"{wire}.out" for wire in toy.walk.outputs}
    step = toy.walk.inline("inner", {**inputs, **outputs})
    clash = set(toy.walk.inputs) & set(toy.walk.outputs)
    if clash:  # a wire that is carried in place has one name on both sides
        step = toy.walk.inline("inner", {**outputs, **inputs})
        outputs |= {wire: inputs[wire] for wire in clash}
    whole = Walk("whole", step, tuple(inputs.values()), tuple(outputs[w] for w in toy.walk.outputs))
    values = toy.requests[-1]
    want = run(toy.graph, toy.walk, values).outputs
    got = run(toy.graph, whole, {inputs[wire]: value for wire, value in values.items()}).outputs
    assert all(same(got[outputs[wire]], want[wire]) for wire in want)
