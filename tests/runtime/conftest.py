"""Toy models with known answers for the runtime's tests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mstar_plan.runtime.runtime import Runtime
from mstar_plan.walks.batch import Batch
from mstar_plan.walks.component import Batching
from mstar_plan.walks.graph import Graph
from mstar_plan.walks.state import WalkState
from mstar_plan.walks.step import Best, Collect, Loop, Node, Parallel, Sequential
from mstar_plan.walks.walk import Walk


class Counted:
    """A function of a Batch as a component that remembers the sizes of its batches."""

    def __init__(self, function: Callable[[Batch], dict[str, Any]], batching: Batching = Batching.EQUAL) -> None:
        self.function, self.batching = function, batching
        self.sizes: list[int] = []

    def __call__(self, batch: Batch) -> dict[str, Any]:
        self.sizes.append(batch.size)
        return self.function(batch)

    def run(self, batches: list[Batch]) -> list[dict[str, Any]]:
        self.sizes.append(sum(b.size for b in batches))
        return [self.function(b) for b in batches]


class Gate:
    """A component that holds its worker until the test opens it."""

    batching = Batching.ALONE

    def __init__(self) -> None:
        self.entered, self.opened = threading.Event(), threading.Event()

    def __call__(self, batch: Batch) -> dict[str, Any]:
        self.entered.set()
        assert self.opened.wait(20), "the test never opened the gate"
        return {"y": batch["x"]}


def plan_walk() -> Walk:
    """Encodes two things, then searches: the shape of a plan request."""
    predict = Node("predict", {"z": "now", "action": "action"}, {"z": "now"})
    roll = Loop(predict, times="horizon", carry={"now": "z"}, name="roll")
    body = Sequential(
        (
            Node("propose", ("mean", "seed", "i"), ("action",)),
            roll,
            Node("score", {"z": "now", "goal": "goal"}, ("cost",)),
            Node("refit", ("mean", "action", "cost"), ("mean",)),
        )
    )
    search = Loop(
        body,
        times="iterations",
        carry=("mean",),
        index="i",
        anytime=True,
        best=Best("cost", {"action": "best_action", "cost": "best_cost"}),
        collect={"cost": Collect("costs")},
        name="search",
    )
    encode = Parallel((Node("see", {"x": "x"}, {"z": "z"}, "encode"), Node("aim", {"x": "g"}, {"z": "goal"}, "encode")))
    return Walk(
        "plan",
        Sequential((encode, search)),
        ("x", "g", "mean", "seed", "iterations", "horizon"),
        ("best_action", "best_cost", "costs", "mean"),
    )


def plan_graph() -> Graph:
    """Row-wise arithmetic, so that a row's bits cannot depend on its batch."""

    def propose(b: Batch) -> dict[str, Any]:
        seed, i = b["seed"].double(), b["i"].double()
        return {"action": b["mean"] + 0.5 ** i[:, None] * torch.sin(seed * 12.9898 + i * 78.233)[:, None]}

    functions: dict[str, Callable[[Batch], dict[str, Any]]] = {
        "encode": lambda b: {"z": b["x"] * 2 + 1},
        "propose": propose,
        "predict": lambda b: {"z": b["z"] * 0.9 + b["action"]},
        "score": lambda b: {"cost": (b["z"] - b["goal"]).square().sum(-1)},
        "refit": lambda b: {"mean": (b["mean"] + b["action"] / (1 + b["cost"][:, None])) / 2},
        "gate": lambda b: {"y": b["x"]},
    }
    components: dict[str, Any] = {name: Counted(f) for name, f in functions.items()}
    components["gate"] = Gate()
    return Graph("toy", components, {"plan": plan_walk(), "gate": one_node_walk("gate")})


def one_node_walk(name: str) -> Walk:
    return Walk(name, Node(name, ("x",), ("y",)), ("x",), ("y",))


def plan_values(
    seed: int = 0, *, rows: int = 1, width: int = 3, iterations: int = 3, horizon: int = 4
) -> dict[str, Any]:
    noise = torch.Generator().manual_seed(seed)
    draw = lambda: torch.rand(rows, width, generator=noise, dtype=torch.float64)  # noqa: E731
    seeds = torch.arange(seed, seed + rows)
    return {"x": draw(), "g": draw(), "mean": draw(), "seed": seeds, "iterations": iterations, "horizon": horizon}


def by_hand(graph: Graph, walk: str, values: dict[str, Any]) -> dict[str, Any]:
    """The walk's outputs without any runtime: one node after the other."""
    state = WalkState(graph.walks[walk], values)
    while not state.finished:
        node = state.ready()[0]
        state.complete(node, graph.components[node.component](state.inputs_of(node)))
    return state.outputs()


def equal(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) if torch.is_tensor(a[k]) else a[k] == b[k] for k in a)


def eventually(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.002)
    return True


def workers_alive() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("mstar-worker")]


def one_node(function: Callable[[Batch], dict[str, Any]], *, batching: Batching = Batching.EQUAL) -> Graph:
    """A graph with a walk of one node, `work: x -> y`, and the gate."""
    components = {"work": Counted(function, batching), "gate": Gate()}
    return Graph("one", components, {name: one_node_walk(name) for name in components})


class Held:
    """Holds the worker of a runtime inside the gate, so that what is submitted meanwhile starts together."""

    def __init__(self, runtime: Runtime) -> None:
        graph = next(iter(runtime.graphs.values()))
        self.gate: Any = graph.components["gate"]
        self.request = runtime.submit("gate", {"x": torch.zeros(1)}, session="gate")
        assert self.gate.entered.wait(20)

    def __enter__(self) -> Held:
        return self

    def __exit__(self, *_: object) -> None:
        self.gate.opened.set()


@pytest.fixture(scope="session")
def toys() -> SimpleNamespace:
    return SimpleNamespace(
        Counted=Counted,
        Gate=Gate,
        Held=Held,
        by_hand=by_hand,
        equal=equal,
        eventually=eventually,
        one_node=one_node,
        one_node_walk=one_node_walk,
        plan_graph=plan_graph,
        plan_values=plan_values,
        workers_alive=workers_alive,
    )


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = set(workers_alive())
    yield
    assert eventually(lambda: set(workers_alive()) <= before), f"threads left: {workers_alive()}"
