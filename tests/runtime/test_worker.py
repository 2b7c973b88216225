"""Worker: alone a request pays for nothing that it does not use; and no request is ever left waiting."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mstar_plan.errors import UnavailableError
from mstar_plan.runtime import flight as flight_module
from mstar_plan.runtime.flight import Arrival, Route
from mstar_plan.runtime.request import Job, Request
from mstar_plan.runtime.runtime import Runtime
from mstar_plan.runtime.scheduler import Scheduler
from mstar_plan.runtime.worker import Worker
from mstar_plan.walks.batch import Batch


def arrival(toys: SimpleNamespace, worker: Worker) -> Arrival:
    graph = toys.one_node(lambda b: {"y": b["x"]})
    route = Route(graph.walks["work"], {"work": graph.components["work"]}, {"work": worker})
    return Arrival(Job("one", "work", {"x": torch.zeros(1)}, 0.0), Request(), route)


def test_a_request_alone_is_neither_keyed_nor_joined_nor_copied(
    toys: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any) -> Any:
        raise AssertionError("a request that is alone must not pay for joining")

    graph = toys.one_node(lambda b: {"y": b["x"]})
    monkeypatch.setattr(flight_module, "join_key", never)
    monkeypatch.setattr(Batch, "join", never)
    monkeypatch.setattr(Scheduler, "_choose", never)
    x = torch.zeros(2, 3)
    with Runtime(graph) as runtime:
        assert runtime.submit("work", {"x": x}).result(20).outputs["y"] is x


def test_nodes_run_without_recording_gradients(toys: SimpleNamespace) -> None:
    weight = torch.ones(1, requires_grad=True)
    with Runtime(toys.one_node(lambda b: {"y": b["x"] * weight})) as runtime:
        y = runtime.submit("work", {"x": torch.ones(1)}).result(20).outputs["y"]
    assert y.is_inference()
    assert not y.requires_grad


def test_two_calls_of_one_request_are_charged_once(toys: SimpleNamespace) -> None:
    with Runtime(toys.plan_graph()) as runtime:
        timing = runtime.submit("plan", toys.plan_values()).result(20).timing
    assert timing.largest_batch == 1
    assert sum(timing.component_s.values()) <= timing.run_s + 1e-3


def test_what_waits_when_a_worker_stops_ends_with_an_error(toys: SimpleNamespace) -> None:
    worker = Worker("w")
    waiting = arrival(toys, worker)
    worker.start()
    worker.stop()
    worker.send(waiting)
    with pytest.raises(UnavailableError, match="group 'w' has stopped"):
        waiting.request.result(1)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_worker_that_breaks_leaves_nobody_waiting(toys: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Scheduler, session: str, seconds: float) -> None:
        raise RuntimeError("a bug of ours")

    worker = Worker("w")
    monkeypatch.setattr(Scheduler, "served", broken)
    running, later = arrival(toys, worker), arrival(toys, worker)
    worker.start()
    worker.send(running)
    with pytest.raises(UnavailableError, match="group 'w' has stopped"):
        running.request.result(20)
    worker.send(later)
    with pytest.raises(UnavailableError):
        later.request.result(20)
    worker.stop()
