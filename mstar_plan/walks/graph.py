"""Graph: one model, as named components and the walks over them; graphs compose under prefixes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mstar_plan.errors import NotFoundError, WalkError, did_you_mean
from mstar_plan.walks.component import Component
from mstar_plan.walks.rewrite import Renaming, rewrite
from mstar_plan.walks.step import Node
from mstar_plan.walks.walk import Walk


@dataclass(frozen=True, eq=False)
class Graph:
    """Components and walks under one name.

    Attributes:
        name: The model's name.
        components: {component name: component}.
        walks: {walk name: walk}.

    Raises:
        WalkError: A walk uses a component that is not there, or a port that the component does not have.
    """

    name: str
    components: Mapping[str, Component]
    walks: Mapping[str, Walk]

    def __post_init__(self) -> None:
        for walk in self.walks.values():
            for node in walk.nodes:
                self._check_node(walk, node)

    def _check_node(self, walk: Walk, node: Node) -> None:
        component = self.components.get(node.component)
        where = f"node {node.name!r} of walk {walk.name!r}"
        if component is None:
            hint = did_you_mean(node.component, self.components)
            raise WalkError(
                f"{where} calls component {node.component!r}, which graph {self.name!r} does not have{hint}"
            )
        for side, pairs in (("inputs", node.inputs), ("outputs", node.outputs)):
            ports = getattr(component, side, None)
            given = {port for port, _ in pairs}
            if ports is not None and given != set(ports):
                raise WalkError(
                    f"{where} ties {side} {sorted(given)}, but component {node.component!r} has {sorted(ports)}"
                )

    def walk(self, name: str) -> Walk:
        """The walk of this name.

        Raises:
            NotFoundError: There is none.
        """
        if name not in self.walks:
            raise NotFoundError(
                f"model {self.name!r} has no walk {name!r}{did_you_mean(name, self.walks)}", field="walk"
            )
        return self.walks[name]

    @staticmethod
    def compose(name: str, parts: Mapping[str, Graph], walks: Mapping[str, Walk] | None = None) -> Graph:
        """One graph of several: components and walks of each part under `prefix.name`, and further walks over them.

        Args:
            name: Name of the whole.
            parts: {prefix: graph}.
            walks: Walks over the prefixed components, for example made with `Walk.inline`.
        """
        components = {f"{prefix}.{key}": c for prefix, part in parts.items() for key, c in part.components.items()}
        inner = {
            f"{prefix}.{key}": prefixed(w, prefix) for prefix, part in parts.items() for key, w in part.walks.items()
        }
        return Graph(name, components, {**inner, **(walks or {})})


def prefixed(walk: Walk, prefix: str) -> Walk:
    """The walk with `prefix.` before the names of its components and itself; its wires stay."""
    step = rewrite(walk.step, Renaming(component=lambda c: f"{prefix}.{c}"))
    return Walk(f"{prefix}.{walk.name}", step, walk.inputs, walk.outputs)
