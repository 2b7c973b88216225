"""Graph: one model, as named components and the walks over them; graphs compose under prefixes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from mstar_plan.errors import NotFoundError, WalkError, did_you_mean
from mstar_plan.walks.component import Component
from mstar_plan.walks.rewrite import Renaming, rewrite
from mstar_plan.walks.step import Node
from mstar_plan.walks.walk import Walk

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Graph:
    """Components and walks under one name.

    Attributes:
        name: The model's name.
        components: {component name: component}.
        walks: {walk name: walk}.

    Raises:
        WalkError: A walk uses a component that is not there or a port that the component does not have, or stands
            under another name than its own.
    """

    name: str
    components: Mapping[str, Component]
    walks: Mapping[str, Walk]

    def __post_init__(self) -> None:
        for name, walk in self.walks.items():
            if name != walk.name:
                raise WalkError(
                    f"graph {self.name!r} has walk {walk.name!r} under the name {name!r}; use one name", field=name
                )
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
                    f"{where} ties {side} {sorted(given)}, but component {node.component!r} has {sorted(ports)}; tie "
                    "each of these to a wire"
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

        Raises:
            WalkError: Two parts make the same name, or one of `walks` has a name that a part makes.
        """
        components = [(f"{prefix}.{key}", c) for prefix, part in parts.items() for key, c in part.components.items()]
        inner = [(f"{prefix}.{key}", prefixed(w, prefix)) for prefix, p in parts.items() for key, w in p.walks.items()]
        return Graph(name, _once(name, components), _once(name, [*inner, *(walks or {}).items()]))


def _once(graph: str, items: Sequence[tuple[str, T]]) -> dict[str, T]:
    made = dict(items)
    if len(made) != len(items):
        twice = next(key for key, count in Counter(key for key, _ in items).items() if count > 1)
        raise WalkError(f"graph {graph!r} would have two parts named {twice!r}; choose other prefixes", field=twice)
    return made


def prefixed(walk: Walk, prefix: str) -> Walk:
    """The walk with `prefix.` before the names of its components and itself; its wires stay."""
    step = rewrite(walk.step, Renaming(component=lambda c: f"{prefix}.{c}"))
    return Walk(f"{prefix}.{walk.name}", step, walk.inputs, walk.outputs)
