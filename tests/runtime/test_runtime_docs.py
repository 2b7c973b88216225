"""docs/runtime.md says what the code does: its defaults and its placement file."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import yaml

from mstar_plan.runtime.placement import Placement
from mstar_plan.runtime.runtime import RuntimeConfig
from mstar_plan.walks.graph import Graph
from mstar_plan.walks.step import Node, Sequential
from mstar_plan.walks.walk import Walk

PAGE = (Path(__file__).parents[2] / "docs" / "runtime.md").read_text()


def test_the_table_of_settings_is_true() -> None:
    config = RuntimeConfig()
    rows = re.findall(r"\| `(\w+)\.(\w+)` \| ([\d.]+) \|", PAGE)
    assert len(rows) == 5
    for part, name, value in rows:
        assert getattr(getattr(config, part), name) == float(value), f"{part}.{name}"


def test_the_placement_example_is_true(toys: SimpleNamespace) -> None:
    config = yaml.safe_load(re.search(r"```yaml\n(.*?)```", PAGE, re.DOTALL).group(1))  # type: ignore[union-attr]
    names = ("encode", "encode_goal", "predict")
    chain = tuple(Node(n, (f"v{i}",), (f"v{i + 1}",), "same") for i, n in enumerate(names))
    walks = {
        "plan": Walk("plan", Sequential(chain), ("v0",), ("v3",)),
        "encode": Walk("encode", Node("any", ("x",), ("y",), "same"), ("x",), ("y",)),
    }
    placement = Placement.from_config(config, Graph("g", {"same": toys.Counted(dict)}, walks))
    groups = [placement.group("g", "plan", n) for n in names] + [placement.group("g", "encode", "any")]
    assert groups == ["camera", "camera", "planner", "camera"]
    assert [piece.nodes for piece in placement.cut(walks["plan"])] == [("encode", "encode_goal"), ("predict",)]
