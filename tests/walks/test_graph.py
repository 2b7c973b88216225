"""Graphs: components and walks that fit together, under one name or under prefixes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from walk_driver import run

from mstar_plan.errors import NotFoundError, WalkError
from mstar_plan.walks.component import FunctionComponent
from mstar_plan.walks.graph import Graph, prefixed
from mstar_plan.walks.step import Loop, Node, Sequential
from mstar_plan.walks.walk import Walk


def act(component: str = "net", reads: Any = ("x",), writes: Any = ("y",)) -> Walk:
    return Walk("act", Node("act", reads, writes, component), ("x",), ("y",))


def policy() -> Graph:
    return Graph("policy", {"net": FunctionComponent(lambda x: x * 2, ("x",), ("y",))}, {"act": act()})


def world() -> Graph:
    step = Loop(Node("predict", ("z", "a"), ("z",)), 3, carry=("z",), name="rollout")
    predict = FunctionComponent(lambda z, a: z + a, ("z", "a"), ("z",))
    return Graph("world", {"predict": predict}, {"imagine": Walk("imagine", step, ("z", "a"), ("z",))})


def test_a_graph_knows_its_walks() -> None:
    assert policy().walk("act").name == "act"
    with pytest.raises(NotFoundError, match=r"model 'policy' has no walk 'akt'; did you mean 'act'\?") as raised:
        policy().walk("akt")
    assert raised.value.field == "walk"


@pytest.mark.parametrize(
    ("walk", "message"),
    [
        (act("nett"), r"node 'act' of walk 'act' calls component 'nett', which graph 'g' does not have; .* 'net'"),
        (act(reads={"image": "x"}), r"node 'act' of walk 'act' ties inputs \['image'\], .*'net' has \['x'\]; tie each"),
        (act(writes={"out": "y"}), r"ties outputs \['out'\], but component 'net' has \['y'\]"),
    ],
)
def test_nodes_fit_their_components(walk: Walk, message: str) -> None:
    with pytest.raises(WalkError, match=message):
        Graph("g", policy().components, {"act": walk})


def test_a_component_without_declared_ports_takes_any() -> None:
    Graph("g", {"net": lambda batch: {"out": 1}}, {"act": act(writes={"out": "y"})})


def test_a_walk_stands_under_its_own_name() -> None:
    with pytest.raises(WalkError, match=r"graph 'g' has walk 'act' under the name 'go'; use one name"):
        Graph("g", policy().components, {"go": act()})


def test_graphs_compose_under_prefixes() -> None:
    """A policy proposes, a world model imagines: one walk over two models."""
    parts = {"policy": policy(), "world": world()}
    step = Sequential(
        (
            prefixed(parts["policy"].walk("act"), "policy").inline("p", {"x": "x", "y": "a"}),
            prefixed(parts["world"].walk("imagine"), "world").inline("w", {"z": "x", "a": "a"}),
        )
    )
    whole = Graph.compose("both", parts, {"look_ahead": Walk("look_ahead", step, ("x",), ("x",))})
    assert set(whole.components) == {"policy.net", "world.predict"}
    assert set(whole.walks) == {"policy.act", "world.imagine", "look_ahead"}
    assert run(whole, "look_ahead", {"x": torch.ones(1)}).outputs["x"].item() == 1 + 3 * 2
    assert run(whole, "policy.act", {"x": torch.ones(1)}).outputs["y"].item() == 2


def test_names_that_meet_when_composed_are_refused() -> None:
    walk = Walk("p.act", Node("act", ("x",), ("y",), "p.net"), ("x",), ("y",))
    with pytest.raises(WalkError, match=r"graph 'both' would have two parts named 'p.act'; choose other prefixes"):
        Graph.compose("both", {"p": policy()}, {"p.act": walk})
    deep = Graph("deep", {"b.net": lambda b: b}, {})
    with pytest.raises(WalkError, match=r"two parts named 'a.b.net'"):
        Graph.compose("both", {"a": deep, "a.b": policy()})
