"""`mstar-plan graph MODEL`: the walks of a model as an indented tree, or as a Mermaid flow chart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from mstar_plan.build import PlanningConfig, Task, build_graph
from mstar_plan.config import Section, load, options
from mstar_plan.families.catalogue import families, load_family
from mstar_plan.walks.draw import draw_mermaid, draw_text
from mstar_plan.walks.graph import Graph


@dataclass(frozen=True, kw_only=True)
class GraphConfig(PlanningConfig):
    """Whose walks to draw; a planner may change their shape.

    Attributes:
        model: File in `conf/task/`.
    """

    model: Annotated[Task, Section("task")]


def graph(model: str, walk: str = "", mermaid: bool = False, words: Sequence[str] = ()) -> None:
    """Prints one walk of a model, or all of them."""
    made = _graph(model, words)
    draw = draw_mermaid if mermaid else draw_text
    names = [walk] if walk else list(made.walks)
    typer.echo("\n\n".join(draw(made.walk(name)) for name in names))


def _graph(model: str, words: Sequence[str]) -> Graph:
    if model not in options("task") and model in families():
        return load_family(model).graph
    config = load("graph", [f"model={model}", *words], GraphConfig)
    return build_graph(config.model, config)
