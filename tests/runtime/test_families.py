"""All toy families through the runtime: many requests at once give what each gives alone, step by step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from toys import FAMILIES
from walk_driver import run, same

from mstar_plan.runtime.placement import Placement
from mstar_plan.runtime.runtime import Runtime
from mstar_plan.walks.graph import Graph


def test_the_families_share_one_runtime() -> None:
    """Every request of every family four times over, all in flight together, in one runtime."""
    toys = {name: make() for name, make in FAMILIES.items()}
    with Runtime({name: toy.graph for name, toy in toys.items()}) as runtime:
        sent = [
            (toy, values, runtime.submit(name, values, graph=name, session=f"{name}{n % 2}"))
            for n in range(4)
            for name, toy in toys.items()
            for values in toy.requests
        ]
        for toy, values, request in sent:
            result = request.result(60)
            toy.check(values, dict(result.outputs))
            alone = run(toy.graph, toy.walk, values)
            assert same(result.outputs, alone.outputs)
            assert result.loop_ends == alone.state.loop_ends


@pytest.mark.parametrize("name", FAMILIES)
def test_requests_that_start_together_share_calls(name: str, toys: SimpleNamespace) -> None:
    toy = FAMILIES[name]()
    counts: dict[str, list[int]] = {}
    components = {key: _Counting(key, component, counts) for key, component in toy.graph.components.items()}
    graph = Graph("toy", {**components, "gate": toys.Gate()}, {**toy.graph.walks, "gate": toys.one_node_walk("gate")})
    with Runtime(graph) as runtime:
        with toys.Held(runtime):
            requests = [runtime.submit(name, toy.requests[0]) for _ in range(6)]
        results = [request.result(60) for request in requests]
    want = run(toy.graph, toy.walk, toy.requests[0])
    assert all(same(result.outputs, want.outputs) for result in results)
    component_of = {node.name: node.component for node in toy.walk.nodes}
    calls = Counter(component_of[node] for node in want.trace)
    assert {key: sum(sizes) for key, sizes in counts.items()} == {key: 6 * calls[key] for key in counts}
    assert all(result.timing.largest_batch == 6 for result in results)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_walk_spread_over_two_groups_gives_the_same(name: str) -> None:
    toy = FAMILIES[name]()
    nodes = {f"{name}/{node.name}": "ab"[n % 2] for n, node in enumerate(toy.walk.nodes)}
    placement = Placement.from_config({"groups": {"a": {}, "b": {}}, "nodes": nodes}, toy.graph)
    with Runtime(toy.graph, placement=placement) as runtime:
        requests = [(values, runtime.submit(name, values)) for values in toy.requests for _ in range(2)]
        for values, request in requests:
            assert same(request.result(60).outputs, run(toy.graph, toy.walk, values).outputs)


class _Counting:
    """A component that notes how many requests each of its calls served."""

    def __init__(self, name: str, component: Any, counts: dict[str, list[int]]) -> None:
        self.component, self.sizes = component, counts.setdefault(name, [])
        self.batching = component.batching

    def __call__(self, batch: Any) -> Mapping[str, Any]:
        self.sizes.append(batch.size)
        return self.component(batch)

    def run(self, batches: Any) -> Any:
        self.sizes.append(len(batches))
        return self.component.run(batches)
