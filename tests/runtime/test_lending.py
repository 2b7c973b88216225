"""A caller who waits lends the worker his thread; nobody else notices, whatever happens to him."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import torch

from mstar_plan.errors import CancelledError, ComponentError, UnavailableError
from mstar_plan.runtime.placement import Placement
from mstar_plan.runtime.runtime import Runtime

X = torch.zeros(1)


def test_the_work_is_done_in_the_callers_thread(toys: SimpleNamespace) -> None:
    threads: list[threading.Thread] = []
    with Runtime(toys.one_node(lambda b: threads.append(threading.current_thread()) or {"y": b["x"]})) as runtime:
        request = runtime.submit("work", {"x": X}, here=True)
        assert request.done()
        runtime.submit("work", {"x": X}).result(20)
    assert threads[0] is threading.current_thread()
    assert threads[1].name.startswith("mstar-worker")


def test_the_values_are_the_same(toys: SimpleNamespace) -> None:
    values = toys.plan_values(3)
    with Runtime(toys.plan_graph()) as runtime:
        here = runtime.submit("plan", values, here=True).result(20)
        there = runtime.submit("plan", values).result(20)
    assert toys.equal(here.outputs, there.outputs)
    assert toys.equal(here.outputs, toys.by_hand(toys.plan_graph(), "plan", values))


def test_gradients_and_threads_are_as_before(toys: SimpleNamespace) -> None:
    seen: list[tuple[bool, int]] = []
    graph = toys.one_node(
        lambda b: seen.append((torch.is_inference_mode_enabled(), torch.get_num_threads())) or {"y": X}
    )
    before = torch.get_num_threads()
    placement = Placement.from_config({"groups": {"all": {"threads": 1}}, "nodes": {"*": "all"}}, {"one": graph})
    with Runtime({"one": graph}, placement=placement) as runtime:
        runtime.submit("work", {"x": X}, here=True).result(0)
    assert seen == [(True, 1)]
    assert not torch.is_inference_mode_enabled()
    assert torch.get_num_threads() == before


def test_a_busy_worker_does_it_itself(toys: SimpleNamespace) -> None:
    graph = toys.one_node(lambda b: {"y": b["x"]})
    with Runtime(graph) as runtime:
        held = runtime.submit("gate", {"x": X})
        graph.components["gate"].entered.wait(20)
        request = runtime.submit("work", {"x": X}, here=True)
        assert not request.done()
        graph.components["gate"].opened.set()
        request.result(20)
        held.result(20)


def test_who_comes_meanwhile_is_served_too(toys: SimpleNamespace) -> None:
    graph = toys.one_node(lambda b: {"y": b["x"]})
    with Runtime(graph) as runtime, ThreadPoolExecutor(1) as lender:
        lending = lender.submit(lambda: runtime.submit("gate", {"x": X}, here=True).result(20))
        graph.components["gate"].entered.wait(20)
        others = [runtime.submit("work", {"x": X}) for _ in range(5)]
        graph.components["gate"].opened.set()
        lending.result(20)
        for other in others:
            other.result(20)
    assert graph.components["work"].sizes == [5]


def test_many_lenders_at_once(toys: SimpleNamespace) -> None:
    values = [toys.plan_values(i) for i in range(8)]
    expected = [toys.by_hand(toys.plan_graph(), "plan", v) for v in values]
    with Runtime(toys.plan_graph()) as runtime, ThreadPoolExecutor(8) as pool:
        for _ in range(30):
            found = list(pool.map(lambda v: runtime.submit("plan", v, here=True).result(20).outputs, values))
            assert all(toys.equal(a, b) for a, b in zip(found, expected, strict=True))
        assert toys.eventually(lambda: len(runtime._admission) == 0)


def test_an_interrupt_reaches_the_caller(toys: SimpleNamespace) -> None:
    def interrupted(batch: object) -> dict[str, torch.Tensor]:
        raise KeyboardInterrupt

    graph = toys.one_node(interrupted)
    with Runtime(graph) as runtime:
        with pytest.raises(KeyboardInterrupt):
            runtime.submit("work", {"x": X}, here=True)
        graph.components["work"].function = lambda b: {"y": b["x"]}
        runtime.submit("work", {"x": X}, here=True).result(0)
        runtime.submit("work", {"x": X}).result(20)


def test_errors_come_as_ever(toys: SimpleNamespace) -> None:
    with (
        Runtime(toys.one_node(lambda b: {"y": 1 / 0})) as runtime,
        pytest.raises(ComponentError, match="ZeroDivisionError"),
    ):
        runtime.submit("work", {"x": X}, here=True).result(0)


def test_cancel_and_close_while_lent(toys: SimpleNamespace) -> None:
    graph = toys.one_node(lambda b: {"y": b["x"]})
    runtime = Runtime(graph)
    with ThreadPoolExecutor(2) as pool:
        lending = pool.submit(lambda: runtime.submit("gate", {"x": X}, here=True).result(20))
        graph.components["gate"].entered.wait(20)
        closing = pool.submit(runtime.close, drain=False)
        assert toys.eventually(lambda: runtime._closed)
        graph.components["gate"].opened.set()
        with pytest.raises((CancelledError, UnavailableError)):
            lending.result(20)
        closing.result(20)
    with pytest.raises(UnavailableError):
        runtime.submit("work", {"x": X}, here=True)
