"""Runs walks without a runtime: one node at a time in any order, or many requests joined at random."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from mstar_plan.walks.batch import Batch, split_outputs
from mstar_plan.walks.component import Batching
from mstar_plan.walks.graph import Graph
from mstar_plan.walks.state import WalkState
from mstar_plan.walks.step import Node
from mstar_plan.walks.walk import Walk

Components = Mapping[str, Any]
STEPS = 20_000  # more than any walk in the tests takes: over it, a walk counts as one that does not end


class Run:
    """A finished request: its outputs, its state and the order in which its nodes ran."""

    def __init__(self, state: WalkState, trace: list[str]) -> None:
        self.state, self.trace = state, trace
        self.outputs = state.outputs()


def run(
    graph: Graph | Components,
    walk: Walk | str,
    values: Mapping[str, Any],
    *,
    choose: Callable[[list[Node]], Node] = lambda ready: ready[0],
    **options: Any,
) -> Run:
    """Runs one request to its end; `choose` says which ready node is next."""
    components, walk = _parts(graph, walk)
    state = WalkState(walk, values, **options)
    trace: list[str] = []
    while not state.finished:
        node = choose(state.ready())
        state.complete(node, components[node.component](state.inputs_of(node)))
        trace.append(node.name)
        assert len(trace) < STEPS, f"walk {walk.name!r} does not end"
    assert state.ready() == []
    return Run(state, trace)


def run_together(
    graph: Graph | Components, walk: Walk | str, requests: Sequence[Mapping[str, Any]], rng: random.Random
) -> list[dict[str, Any]]:
    """Runs requests side by side: again and again a random part of the calls that may be joined is run as one."""
    components, walk = _parts(graph, walk)
    states = [WalkState(walk, values) for values in requests]
    for _ in range(STEPS):
        calls = [(state, node) for state in states for node in state.ready()]
        if not calls:
            return [state.outputs() for state in states]
        first = rng.choice(calls)
        component = components[first[1].component]
        batching = getattr(component, "batching", Batching.EQUAL)
        mates = [c for c in calls if c is not first and _fits(components, first, c, batching)]
        chosen = [first, *rng.sample(mates, rng.randint(0, len(mates)))]
        batches = [state.inputs_of(node) for state, node in chosen]
        if batching is Batching.RAGGED:
            answers = component.run(batches)
        else:
            answers = split_outputs(component(Batch.join(batches)), [b.size for b in batches])
        for (state, node), answer in zip(chosen, answers, strict=True):
            state.complete(node, answer)
    raise AssertionError(f"walk {walk.name!r} does not end")


def _parts(graph: Graph | Components, walk: Walk | str) -> tuple[Components, Walk]:
    components = graph.components if isinstance(graph, Graph) else graph
    if isinstance(walk, str):
        assert isinstance(graph, Graph)
        walk = graph.walks[walk]
    return components, walk


def _fits(components: Components, a: tuple[WalkState, Node], b: tuple[WalkState, Node], batching: Batching) -> bool:
    if batching is Batching.ALONE or components[a[1].component] is not components[b[1].component]:
        return False
    return batching is Batching.RAGGED or a[0].inputs_of(a[1]).join_key() == b[0].inputs_of(b[1]).join_key()


def same(a: Any, b: Any) -> bool:
    """Whether two values, or two mappings of values, are the same, bit for bit."""
    if isinstance(a, Mapping):
        return a.keys() == b.keys() and all(same(a[name], b[name]) for name in a)
    if isinstance(a, Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.nan_to_num(7.5), b.nan_to_num(7.5))
    if hasattr(a, "dense"):
        return same(a.dense(), b.dense())
    return type(a) is type(b) and bool(a == b)
