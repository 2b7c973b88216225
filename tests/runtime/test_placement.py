"""Placement: patterns decide who runs what; whatever is not meant is an error with its cure."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from mstar_plan.errors import ConfigError, NotFoundError
from mstar_plan.runtime.placement import Group, Placement, PlacementConfig

ROOT = Path(__file__).parents[2]


def test_the_first_pattern_that_fits_decides(toys: SimpleNamespace) -> None:
    config = {
        "groups": {"eye": {"threads": 1}, "brain": {"device": "cpu"}, "rest": None},
        "nodes": {"plan/see": "eye", "plan/a*": "eye", "plan": "brain", "*": "rest"},
    }
    placement = Placement.from_config(config, toys.plan_graph())
    groups = {node: group for (_, _, node), group in placement.table.items()}
    assert groups == {
        "see": "eye",
        "aim": "eye",
        "propose": "brain",
        "predict": "brain",
        "score": "brain",
        "refit": "brain",
        "gate": "rest",
    }
    assert placement.groups["eye"] == Group(threads=1)
    assert placement.group("toy", "plan", "see") == "eye"


def test_graphs_can_be_told_apart(toys: SimpleNamespace) -> None:
    one = toys.one_node(lambda b: {"y": b["x"]})
    config = {"groups": {"a": {}, "b": {}}, "nodes": {"first/*/*": "a", "*": "b"}}
    placement = Placement.from_config(config, {"first": one, "second": one})
    assert placement.group("first", "work", "work") == "a"
    assert placement.group("second", "work", "work") == "b"
    with pytest.raises(NotFoundError, match="in graphs first, second; say which"):
        placement.cut(one.walks["work"])
    assert [p.group for p in placement.cut(one.walks["work"], "second")] == ["b"]


@pytest.mark.parametrize("config", [{}, {"groups": {"main": {}}}, PlacementConfig()])
def test_everything_has_a_default(toys: SimpleNamespace, config: Any) -> None:
    assert set(Placement.from_config(config, toys.plan_graph()).table.values()) == {"main"}


def test_the_shipped_file_places_any_graph(toys: SimpleNamespace) -> None:
    config = yaml.safe_load((ROOT / "conf" / "placement" / "local.yaml").read_text())
    assert Placement.from_config(config, toys.plan_graph()).groups == {"main": Group()}


MAIN = {"main": {}}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"groups": MAIN, "nodes": {"*": "mian"}}, "'mian'; did you mean 'main'"),
        ({"groups": MAIN, "nodes": {"plan/sea": "main", "*": "main"}}, "'plan/sea' fits no node; did you mean 'see'"),
        ({"groups": MAIN, "nodes": {"plam/see": "main", "*": "main"}}, "fits no node; did you mean 'plan'"),
        ({"groups": MAIN, "nodes": {"plam": "main", "*": "main"}}, "fits no node; did you mean 'plan'"),
        ({"groups": MAIN, "nodes": {"tov/plan/see": "main", "*": "main"}}, "fits no node; did you mean 'toy'"),
        ({"groups": MAIN, "nodes": {"a/b/c/d": "main"}}, "write walk/node or graph/walk/node"),
        ({"groups": MAIN, "nodes": {"plan/see": "main"}}, r"leaves 6 node\(s\) without a group: plan/aim, .*'\*': G"),
        ({"groups": MAIN, "nodes": {"*": "main", "plan/see": "main"}}, "'plan/see' comes after others"),
        ({"groups": {**MAIN, "idle": {}}, "nodes": {"*": "main"}}, "group 'idle' runs no node"),
        ({"group": MAIN}, "no key 'group'; did you mean 'groups'"),
        ({"groups": {"main": {"thread": 1}}}, "group 'main' has no key 'thread'; did you mean 'threads'"),
        ({"groups": {"main": {"threads": 0}}}, "threads is 0"),
        ({"groups": {"main": {"threads": True}}}, "threads is True"),
        ({"groups": {"main": {"threads": "two"}}}, "threads is 'two'"),
        ({"groups": {"main": {"device": "gpu"}}}, "device is 'gpu', which is no torch device"),
        ({"groups": {"main": {"device": 3.5}}}, "device is 3.5"),
        ({"groups": ["main"]}, "'groups' is .*; it needs"),
        ({"nodes": "main"}, "'nodes' is 'main'; it needs"),
        ({"groups": {"main": 1}}, "'main' is 1; it needs"),
    ],
)
def test_mistakes_are_told(toys: SimpleNamespace, config: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Placement.from_config(config, toys.plan_graph())


def test_a_node_that_was_not_placed_is_told(toys: SimpleNamespace) -> None:
    placement = Placement.single(toys.plan_graph())
    with pytest.raises(NotFoundError, match=r"toy/plan/sea.*did you mean 'toy/plan/see'"):
        placement.group("toy", "plan", "sea")
    with pytest.raises(NotFoundError, match="does not know"):
        placement.cut(toys.one_node(lambda b: {"y": b["x"]}).walks["work"])
