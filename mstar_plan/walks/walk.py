"""Walk: a request's path over the components of a model, checked when it is made; its edges are derived."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mstar_plan.errors import WalkError, did_you_mean
from mstar_plan.walks.check import check_walk
from mstar_plan.walks.rewrite import Renaming, rewrite
from mstar_plan.walks.step import Loop, Node, Parallel, Step, every_step, nodes_of, reads_of, writes_of


@dataclass(frozen=True)
class Edge:
    """A value's way from one node to another; an empty name stands for the request itself."""

    source: str
    value: str
    target: str


@dataclass(frozen=True, eq=False)
class Walk:
    """A named, checked step with its inputs and outputs.

    Attributes:
        name: What requests call it.
        step: What to do.
        inputs: Values that a request brings.
        outputs: Values that it gets back.

    Raises:
        WalkError: The walk cannot run, may never end, or computes what nobody reads.
    """

    name: str
    step: Step
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def __post_init__(self) -> None:
        for side in ("inputs", "outputs"):
            names = getattr(self, side)
            if isinstance(names, str):
                raise WalkError(f"walk {self.name!r} has {side}={names!r}, one string; write ({names!r},)", field=side)
            object.__setattr__(self, side, tuple(names))
        check_walk(self.name, self.step, self.inputs, self.outputs)

    @property
    def nodes(self) -> list[Node]:
        """All nodes, in order of writing."""
        return nodes_of(self.step)

    def sources(self, wire: str) -> list[str]:
        """The nodes whose values a reader of `wire` may see, in order of writing; an empty name is the request."""
        origins = _origins(wire, *_passed_on(self.step))
        nodes = [node.name for node in self.nodes if origins & {written for _, written in node.outputs}]
        return nodes if origins.isdisjoint(self.inputs) else ["", *nodes]

    def edges(self) -> list[Edge]:
        """Who reads what from whom, by wire; values that loops pass on are named after the node that wrote them."""
        reads = [(node.name, wire) for node in self.nodes for _, wire in node.inputs]
        reads += [("", wire) for wire in self.outputs]
        sources = {wire: self.sources(wire) for _, wire in reads}
        return list(dict.fromkeys(Edge(source, wire, target) for target, wire in reads for source in sources[wire]))

    def inline(self, prefix: str, rename: Mapping[str, str] | None = None) -> Step:
        """This walk as a step of another walk.

        Args:
            prefix: Put before the names of nodes, loops and inner wires: `prefix.name`.
            rename: {wire of this walk: wire outside} for inputs and outputs; others get the prefix as well.

        Raises:
            WalkError: `rename` names a wire that this walk does not have.
        """
        rename = dict(rename or {})
        wires = set(self.inputs) | reads_of(self.step) | writes_of(self.step)
        for name in rename:
            if name not in wires:
                raise WalkError(
                    f"walk {self.name!r} has no wire {name!r} to rename{did_you_mean(name, wires)}", field=name
                )
        return rewrite(
            self.step,
            Renaming(
                wire=lambda w: rename.get(w, f"{prefix}.{w}"), node=lambda n: f"{prefix}.{n}", component=lambda c: c
            ),
        )


def _passed_on(step: Step) -> tuple[dict[str, set[str]], dict[str, set[tuple[str, bool]]]]:
    """{carried wire: first values}, and {wire: (wire whose value it passes on, True if that may be a first value)}."""
    firsts: dict[str, set[str]] = {}
    gathered: dict[str, set[tuple[str, bool]]] = {}
    for s in every_step(step):
        pairs: list[tuple[str, str, bool]] = []
        if isinstance(s, Loop):
            for name, first in s.carries:
                firsts.setdefault(name, set()).add(first)
            pairs += [(c.into, name, False) for name, c in s.collects] + [(c.into, name, True) for name, c in s.scans]
            pairs += [(wire, name, True) for name, wire in (s.best.keep.items() if s.best else ())]
        elif isinstance(s, Parallel):
            pairs += [(stream.into, stream.value, False) for stream in s.streams]
        for target, source, whole in pairs:
            gathered.setdefault(target, set()).add((source, whole))
    return firsts, gathered


def _origins(wire: str, firsts: Mapping[str, set[str]], gathered: Mapping[str, set[tuple[str, bool]]]) -> set[str]:
    """The wires whose writers a reader of `wire` depends on."""
    seen: set[tuple[str, bool]] = set()
    todo = [(wire, True)]
    while todo:
        name, whole = todo.pop()
        if (name, whole) not in seen:
            seen.add((name, whole))
            todo += gathered.get(name, set())
            todo += [(first, True) for first in firsts.get(name, set()) if whole]
    return {name for name, _ in seen}
