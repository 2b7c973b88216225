"""LocalExecutor: a thread for each group, with its device and its torch threads."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mstar_plan.errors import ConfigError, UnavailableError
from mstar_plan.runtime.executor import LocalExecutor
from mstar_plan.runtime.placement import Group, Placement
from mstar_plan.runtime.runtime import Runtime
from mstar_plan.walks.batch import Batch
from mstar_plan.walks.graph import Graph
from mstar_plan.walks.step import Node, Parallel
from mstar_plan.walks.walk import Walk


def two_nodes(left: Any, right: Any) -> Graph:
    step = Parallel((Node("left", {"x": "x"}, {"y": "l"}), Node("right", {"x": "x"}, {"y": "r"})))
    return Graph("g", {"left": left, "right": right}, {"w": Walk("w", step, ("x",), ("l", "r"))})


def placed(graph: Graph, **groups: Any) -> Placement:
    return Placement.from_config({"groups": groups, "nodes": {f"w/{name}": name for name in groups}}, graph)


def test_every_group_has_its_thread_and_its_torch_threads() -> None:
    def look(b: Batch) -> dict[str, Any]:
        return {"y": (threading.current_thread().name, torch.get_num_threads())}

    before = torch.get_num_threads()
    graph = two_nodes(look, look)
    with Runtime(graph, placement=placed(graph, left={"threads": 1}, right={"threads": 2})) as runtime:
        outputs = runtime.submit("w", {"x": torch.zeros(1)}).result(20).outputs
    assert outputs == {"l": ("mstar-worker-left", 1), "r": ("mstar-worker-right", 2)}
    torch.set_num_threads(before)


def test_every_group_gets_its_tensors_on_its_device() -> None:
    def look(b: Batch) -> dict[str, Any]:
        return {"y": b["x"].device.type}

    graph = two_nodes(look, look)
    with Runtime(graph, placement=placed(graph, left={"device": "cpu"}, right={"device": "meta"})) as runtime:
        outputs = runtime.submit("w", {"x": torch.zeros(1)}).result(20).outputs
    assert outputs == {"l": "cpu", "r": "meta"}


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))

    def forward(self, batch: Batch) -> dict[str, Any]:
        return {"y": batch["x"] * self.weight}


def test_components_that_can_move_are_moved_at_the_start() -> None:
    left, right = Model(), Model()
    graph = two_nodes(left, right)
    with Runtime(graph, placement=placed(graph, left={}, right={"device": "meta"})) as runtime:
        outputs = runtime.submit("w", {"x": torch.full((1,), 3.0)}).result(20).outputs
    assert outputs["l"].item() == 3.0
    assert outputs["r"].device.type == "meta"
    assert left.weight.device.type == "cpu"


def test_a_component_cannot_be_on_two_devices() -> None:
    shared = Model()
    graph = two_nodes(shared, shared)
    with pytest.raises(ConfigError, match=r"'right' would have to be on .* place its nodes on one device"):
        Runtime(graph, placement=placed(graph, left={"device": "cpu"}, right={"device": "meta"}))


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_a_device_that_is_not_there_is_told(toys: SimpleNamespace) -> None:
    graph = toys.plan_graph()
    with pytest.raises(UnavailableError, match="group 'main' wants device 'cuda:0'"):
        Runtime(graph, placement=Placement.single(graph, Group(device="cuda")))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_a_group_on_a_gpu_gives_what_the_cpu_gives(toys: SimpleNamespace) -> None:
    graph = toys.plan_graph()
    values = toys.plan_values(3)
    with Runtime(graph, placement=Placement.single(graph, Group(device="cuda"))) as runtime:
        outputs = runtime.submit("plan", values).result(60).outputs
    for name, value in toys.by_hand(toys.plan_graph(), "plan", values).items():
        torch.testing.assert_close(outputs[name].cpu(), value)


def test_closing_before_and_after_is_harmless(toys: SimpleNamespace) -> None:
    executor = LocalExecutor()
    executor.close()
    graph = toys.plan_graph()
    executor.start({"toy": graph}, Placement.single(graph))
    executor.close()
    executor.close()
    assert toys.workers_alive() == []


def test_another_executor_can_be_given(toys: SimpleNamespace) -> None:
    class Recorder(LocalExecutor):
        jobs: list[str] = []  # noqa: RUF012

        def submit(self, job: Any, request: Any, on_value: Any = None) -> None:
            self.jobs.append(job.walk)
            super().submit(job, request, on_value)

    with Runtime(toys.plan_graph(), executor=Recorder()) as runtime:
        runtime.submit("plan", toys.plan_values()).result(20)
    assert Recorder.jobs == ["plan"]
