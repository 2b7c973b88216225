"""Any walk that passes the check finishes, whatever the order, the company and the damage."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from walk_damage import damaged
from walk_driver import STEPS, run, run_together, same
from walk_strategy import COMPONENTS, answer, values_for, walks

from mstar_plan.errors import MStarError, WalkError
from mstar_plan.walks.draw import draw_mermaid, draw_text
from mstar_plan.walks.graph import Graph
from mstar_plan.walks.state import WalkState
from mstar_plan.walks.step import Node
from mstar_plan.walks.walk import Walk

QUICK = settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))


@QUICK
@given(data=st.data(), walk=walks())
def test_a_walk_that_passes_the_check_finishes_in_any_order_with_the_same_values(
    data: st.DataObject, walk: Walk
) -> None:
    graph = Graph("random", COMPONENTS, {"random": walk})
    values = data.draw(values_for(walk))
    first = run(graph, walk, values)
    (out,) = first.outputs.values()
    assert out.shape[0] == first.state.size
    for choose in (lambda ready: ready[-1], random.Random(data.draw(st.integers(0, 999))).choice):
        again = run(graph, walk, values, choose=choose)
        assert same(again.outputs, first.outputs)
        assert again.state.loop_ends == first.state.loop_ends
        assert sorted(again.trace) == sorted(first.trace)


@QUICK
@given(data=st.data(), walk=walks())
def test_alone_is_as_in_a_batch(data: st.DataObject, walk: Walk) -> None:
    requests = data.draw(st.lists(values_for(walk), min_size=2, max_size=4))
    alone = [run(COMPONENTS, walk, values).outputs for values in requests]
    together = run_together(COMPONENTS, walk, requests, random.Random(data.draw(st.integers(0, 999))))
    assert all(same(one, other) for one, other in zip(alone, together, strict=True))


@QUICK
@given(data=st.data(), walk=walks())
def test_inside_another_walk_it_gives_the_same_and_it_can_be_drawn(data: st.DataObject, walk: Walk) -> None:
    values = data.draw(values_for(walk))
    ports = {name: f"outer_{name}" for name in (*walk.inputs, *walk.outputs)}
    inside = [ports[name] for name in walk.inputs], [ports[name] for name in walk.outputs]
    whole = Walk("whole", walk.inline("inner", ports), *inside)
    got = run(COMPONENTS, whole, {ports[name]: value for name, value in values.items()}).outputs
    want = run(COMPONENTS, walk, values).outputs
    assert all(same(got[ports[name]], value) for name, value in want.items())
    text, chart = draw_text(whole), draw_mermaid(whole)
    assert all(node.name in text and node.name in chart for node in whole.nodes)


def end_of(walk: Walk, values: dict[str, Any], choose: Callable[[list[Node]], Node]) -> dict[str, Any] | str:
    """Runs a walk with components that give whatever ports a node declares; its outputs, or the error's name."""
    try:
        state = WalkState(walk, values)
        for _ in range(STEPS):
            if state.finished:
                return state.outputs()
            node = choose(state.ready())
            batch = state.inputs_of(node)
            state.complete(node, {port: answer(node.component, batch) for port, _ in node.outputs})
    except MStarError as error:
        return type(error).__name__
    raise AssertionError("it does not end")


@settings(QUICK, max_examples=400)
@given(data=st.data(), walk=walks(), seed=st.integers(0, 10**6))
def test_a_damaged_walk_is_refused_or_runs_to_its_end(data: st.DataObject, walk: Walk, seed: int) -> None:
    """Never another exception, never a wait for ever, and what runs does not depend on the order."""
    rng = random.Random(seed)
    try:
        broken = Walk("broken", *damaged(walk, rng))
    except WalkError:
        event("refused")
        return
    values = data.draw(values_for(broken))
    first, *others = (end_of(broken, values, choose) for choose in (min_ready, max_ready, rng.choice))
    event(first if isinstance(first, str) else "finished")
    for other in others:
        assert isinstance(first, str) == isinstance(other, str)
        assert isinstance(first, str) or same(first, other)


def min_ready(ready: list[Node]) -> Node:
    return ready[0]


def max_ready(ready: list[Node]) -> Node:
    return ready[-1]
