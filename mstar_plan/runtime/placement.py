"""Placement: which group of the machine runs which node of which walk, and how a walk is cut into pieces by it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import torch

from mstar_plan.errors import ConfigError, NotFoundError, did_you_mean
from mstar_plan.runtime.pieces import Piece, cut_step
from mstar_plan.walks.graph import Graph
from mstar_plan.walks.walk import Walk

Graphs = Mapping[str, Graph]


@dataclass(frozen=True)
class Group:
    """A worker: nodes of one group run one after the other, groups run side by side.

    Attributes:
        device: Torch device that its nodes get their tensors on ("cpu", "cuda:1"); None leaves tensors where they are.
        threads: Torch threads of one operator; None leaves torch's own choice.
    """

    device: str | None = None
    threads: int | None = None

    def __post_init__(self) -> None:
        if self.threads is not None and (type(self.threads) is not int or self.threads < 1):
            raise ConfigError(f"threads is {self.threads!r}; it needs at least 1, or null", field="threads")
        if self.device is not None:
            try:
                torch.device(self.device)
            except (RuntimeError, TypeError) as error:
                raise ConfigError(
                    f"device is {self.device!r}, which is no torch device; write cpu, cuda or cuda:0", field="device"
                ) from error

    @property
    def torch_device(self) -> torch.device | None:
        """The device, with an index where its kind has one."""
        if self.device is None:
            return None
        device = torch.device(self.device)
        return torch.device("cuda", 0) if device.type == "cuda" and device.index is None else device


@dataclass(frozen=True)
class PlacementConfig:
    """What a placement file says.

    Attributes:
        groups: {group: what it is}.
        nodes: {pattern: group}; the first pattern that fits a node decides. A pattern is `walk/node` or `walk` (all its
            nodes), or `graph/walk/node` where the runtime has several graphs; `*` and `?` stand for any characters.
    """

    groups: Mapping[str, Group] = field(default_factory=lambda: {"main": Group()})
    nodes: Mapping[str, str] = field(default_factory=lambda: {"*": "main"})


@dataclass(frozen=True, eq=False)
class Placement:
    """Every node of every walk, with its group.

    Attributes:
        groups: {group: what it is}.
        table: {(graph, walk, node): group}.
    """

    groups: Mapping[str, Group]
    table: Mapping[tuple[str, str, str], str]

    @staticmethod
    def single(graphs: Graph | Graphs, group: Group | None = None) -> Placement:
        """Everything in one group, `main`."""
        return Placement.from_config(PlacementConfig(groups={"main": group or Group()}), graphs)

    @staticmethod
    def from_config(config: PlacementConfig | Mapping[str, Any], graphs: Graph | Graphs) -> Placement:
        """Reads a placement.

        Args:
            config: As `PlacementConfig`, or the same as plain data.
            graphs: The graph, or {name: graph}.

        Raises:
            ConfigError: A group, walk, node or key is unknown, a node is left without a group, or a pattern or a group
                gets nothing to do.
        """
        config = config if isinstance(config, PlacementConfig) else _read(config)
        graphs = {graphs.name: graphs} if isinstance(graphs, Graph) else graphs
        nodes = [(g, w, n.name) for g, graph in graphs.items() for w, walk in graph.walks.items() for n in walk.nodes]
        table: dict[tuple[str, str, str], str] = {}
        for pattern, group in config.nodes.items():
            if group not in config.groups:
                raise ConfigError(
                    f"placement sends {pattern!r} to group {group!r}{did_you_mean(group, config.groups)}", field="nodes"
                )
            fits = [key for key in nodes if _fits(pattern, key)]
            if not fits:
                raise ConfigError(
                    f"placement pattern {pattern!r} fits no node{_suggest(pattern, graphs)}", field="nodes"
                )
            fresh = [key for key in fits if key not in table]
            if not fresh:
                raise ConfigError(
                    f"placement pattern {pattern!r} comes after others that take all its nodes; put it before them",
                    field="nodes",
                )
            table.update(dict.fromkeys(fresh, group))
        _check_complete(config, nodes, table)
        return Placement(config.groups, table)

    def group(self, graph: str, walk: str, node: str) -> str:
        """The group of a node.

        Raises:
            NotFoundError: This placement was not made for that graph.
        """
        key = (graph, walk, node)
        if key not in self.table:
            known = ["/".join(k) for k in self.table]
            raise NotFoundError(f"placement does not know node {'/'.join(key)!r}{did_you_mean('/'.join(key), known)}")
        return self.table[key]

    def cut(self, walk: Walk, graph: str | None = None) -> list[Piece]:
        """The walk's pieces, in order of writing.

        Args:
            walk: The walk.
            graph: Name of its graph; may be left out where only one graph has a walk of that name.

        Raises:
            NotFoundError: The walk was not placed, or several graphs have it and `graph` is not given.
        """
        found = sorted({g for g, w, _ in self.table if w == walk.name})
        if graph is None and len(found) > 1:
            raise NotFoundError(f"walk {walk.name!r} is in graphs {', '.join(found)}; say which", field="graph")
        name = graph if graph is not None else (found[0] if found else "")
        groups = {node.name: self.group(name, walk.name, node.name) for node in walk.nodes}
        return cut_step(walk, groups)


def _read(config: Mapping[str, Any]) -> PlacementConfig:
    _check_keys("placement", config, ("groups", "nodes"))
    read: dict[str, Any] = {}
    if "groups" in config:
        groups = _mapping("groups", config["groups"])
        for name, entries in groups.items():
            if entries is not None:
                _check_keys(f"placement group {name!r}", _mapping(name, entries), ("device", "threads"))
        read["groups"] = {str(name): Group(**(entries or {})) for name, entries in groups.items()}
    if "nodes" in config:
        read["nodes"] = {str(pattern): str(group) for pattern, group in _mapping("nodes", config["nodes"]).items()}
    return PlacementConfig(**read)


def _mapping(name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"placement key {name!r} is {value!r}; it needs a mapping, `key: value`", field=str(name))
    return value


def _check_keys(what: str, entries: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for key in entries:
        if key not in known:
            raise ConfigError(f"{what} has no key {key!r}{did_you_mean(str(key), known)}", field=str(key))


def _fits(pattern: str, key: tuple[str, str, str]) -> bool:
    parts = pattern.split("/")
    if len(parts) == 1:
        parts = [*parts, "*"]
    if len(parts) > 3:
        return False
    return all(fnmatchcase(name, part) for name, part in zip(key[-len(parts) :], parts, strict=True))


def _suggest(pattern: str, graphs: Graphs) -> str:
    parts = pattern.split("/")
    walks = {name for graph in graphs.values() for name in graph.walks}
    if len(parts) > 3:
        return "; write walk/node or graph/walk/node"
    if len(parts) == 3 and not any(fnmatchcase(name, parts[0]) for name in graphs):
        return did_you_mean(parts[0], graphs)
    walk = parts[0] if len(parts) == 1 else parts[-2]
    if len(parts) == 1 or not any(fnmatchcase(name, walk) for name in walks):
        return did_you_mean(walk, walks)
    nodes = {n.name for g in graphs.values() for w, k in g.walks.items() if fnmatchcase(w, walk) for n in k.nodes}
    return did_you_mean(parts[-1], nodes)


def _check_complete(
    config: PlacementConfig, nodes: list[tuple[str, str, str]], table: Mapping[tuple[str, str, str], str]
) -> None:
    left = [f"{walk}/{node}" for graph, walk, node in nodes if (graph, walk, node) not in table]
    if left:
        shown = ", ".join(left[:5]) + (", ..." if len(left) > 5 else "")
        raise ConfigError(
            f"placement leaves {len(left)} node(s) without a group: {shown}; end it with '*': GROUP", field="nodes"
        )
    idle = sorted(set(config.groups) - set(table.values()))
    if idle:
        raise ConfigError(f"placement group {idle[0]!r} runs no node; drop it or place nodes there", field="groups")
