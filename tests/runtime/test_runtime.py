"""Runtime: many requests at once give what each would give alone, and one cannot hurt another."""

from __future__ import annotations

import gc
import random
import threading
import time
import weakref
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mstar_plan.errors import (
    CancelledError,
    ComponentError,
    DeadlineError,
    InvalidInputError,
    LimitExceededError,
    NotFoundError,
    OverloadedError,
    UnavailableError,
)
from mstar_plan.runtime.admission import AdmissionConfig
from mstar_plan.runtime.placement import Placement
from mstar_plan.runtime.request import Done, Value
from mstar_plan.runtime.runtime import Runtime, RuntimeConfig
from mstar_plan.runtime.scheduler import SchedulerConfig
from mstar_plan.walks.batch import Batch
from mstar_plan.walks.component import Batching
from mstar_plan.walks.graph import Graph
from mstar_plan.walks.state import LoopStop
from mstar_plan.walks.step import Branch, Loop, Node, Parallel, Sequential
from mstar_plan.walks.stream import FixedChunks, Stream
from mstar_plan.walks.walk import Walk


def test_a_request_gives_what_the_walk_gives_by_hand(toys: SimpleNamespace) -> None:
    values = toys.plan_values(5)
    with Runtime(toys.plan_graph()) as runtime:
        result = runtime.submit("plan", values).result(20)
    assert toys.equal(result.outputs, toys.by_hand(toys.plan_graph(), "plan", values))
    assert result.loop_ends["search"].stop is LoopStop.COUNT
    assert result.loop_ends["search"].iterations == 3


def test_the_timing_says_where_the_time_went(toys: SimpleNamespace) -> None:
    def slow(b: Batch) -> dict[str, Any]:
        time.sleep(0.03)
        return {"y": b["x"]}

    with Runtime(toys.one_node(slow)) as runtime:
        first, second = (runtime.submit("work", {"x": torch.zeros(1, 1 + i)}) for i in range(2))
        timing, waited = first.result(20).timing, second.result(20).timing
    assert 0.03 <= timing.component_s["work"] <= timing.run_s
    assert timing.largest_batch == 1
    assert waited.queue_s >= 0.02


request_kinds = st.tuples(
    st.integers(0, 99), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(1, 4), st.booleans()
)


@settings(deadline=None, max_examples=40)
@given(kinds=st.lists(request_kinds, min_size=1, max_size=8), max_batch=st.integers(1, 6), held=st.booleans())
def test_together_equals_each_alone(toys: SimpleNamespace, kinds: list[Any], max_batch: int, held: bool) -> None:
    graph = toys.plan_graph()
    requests = [
        (toys.plan_values(seed, rows=rows, width=width, iterations=iterations, horizon=horizon), deterministic)
        for seed, rows, width, iterations, horizon, deterministic in kinds
    ]
    alone = [toys.by_hand(toys.plan_graph(), "plan", values) for values, _ in requests]
    graph.components["gate"].opened.set()
    config = RuntimeConfig(scheduler=SchedulerConfig(max_batch=max_batch))
    with Runtime(graph, config=config) as runtime:
        if held:
            graph.components["gate"].opened.clear()
            with toys.Held(runtime):
                futures = [runtime.submit("plan", v, deterministic=d) for v, d in requests]
        else:
            futures = [runtime.submit("plan", v, deterministic=d) for v, d in requests]
        together = [future.result(20).outputs for future in futures]
    assert all(toys.equal(a, b) for a, b in zip(together, alone, strict=True))


def test_eight_requests_share_every_call(toys: SimpleNamespace) -> None:
    graph = toys.plan_graph()
    with Runtime(graph) as runtime:
        with toys.Held(runtime):
            futures = [runtime.submit("plan", toys.plan_values(i), session=f"robot {i}") for i in range(8)]
        results = [future.result(20) for future in futures]
    sizes = {name: graph.components[name].sizes for name in ("encode", "propose", "predict", "score", "refit")}
    assert sizes == {
        "encode": [16],  # what each sees and what it aims at are one call
        "propose": [8] * 3,
        "predict": [8] * 12,
        "score": [8] * 3,
        "refit": [8] * 3,
    }
    assert {result.timing.largest_batch for result in results} == {8}


def test_requests_that_come_one_by_one_catch_up_and_join(toys: SimpleNamespace) -> None:
    graph = toys.plan_graph()
    predict = graph.components["predict"]
    inner = predict.function

    def slow(b: Batch) -> dict[str, Any]:
        time.sleep(0.002)
        return inner(b)

    predict.function = slow
    with Runtime(graph) as runtime:
        futures = []
        for i in range(6):
            futures.append(runtime.submit("plan", toys.plan_values(i, iterations=5), session=str(i)))
            time.sleep(0.005)
        for future in futures:
            future.result(20)
    assert sum(predict.sizes) == 6 * 20
    assert len(predict.sizes) < 6 * 20 * 0.7


def test_deterministic_requests_are_never_joined(toys: SimpleNamespace) -> None:
    graph = toys.plan_graph()
    with Runtime(graph) as runtime:
        with toys.Held(runtime):
            futures = [runtime.submit("plan", toys.plan_values(i), deterministic=i < 3) for i in range(4)]
        results = [future.result(20) for future in futures]
    assert [r.timing.largest_batch for r in results] == [1, 1, 1, 1]
    assert sorted(graph.components["encode"].sizes) == [1] * 6 + [2]


@pytest.mark.parametrize(("batching", "sizes"), [(Batching.ALONE, [1, 1, 1]), (Batching.RAGGED, [3])])
def test_a_component_says_how_it_joins(toys: SimpleNamespace, batching: Batching, sizes: list[int]) -> None:
    graph = toys.one_node(lambda b: {"y": b["x"] + 1}, batching=batching)
    with Runtime(graph) as runtime:
        with toys.Held(runtime):
            futures = [runtime.submit("work", {"x": torch.full((1, 1 + i), float(i))}) for i in range(3)]
        outputs = [future.result(20).outputs["y"] for future in futures]
    assert graph.components["work"].sizes == sizes
    assert all(torch.equal(y, torch.full((1, 1 + i), i + 1.0)) for i, y in enumerate(outputs))


def test_max_batch_bounds_the_rows_of_a_joined_call(toys: SimpleNamespace) -> None:
    graph = toys.one_node(lambda b: {"y": b["x"]})
    with Runtime(graph, config=RuntimeConfig(scheduler=SchedulerConfig(max_batch=4))) as runtime:
        with toys.Held(runtime):
            futures = [runtime.submit("work", {"x": torch.zeros(rows, 1)}) for rows in (3, 3, 1, 9)]
        for future in futures:
            future.result(20)
    assert sorted(graph.components["work"].sizes) == [3, 4, 9]  # one request over the bound is not cut


def test_every_kind_of_loop_gives_alone_what_it_gives_by_hand(toys: SimpleNamespace) -> None:
    """Loops that only count take a shorter way; a scan is of the value before the loop, even if that rewrites it."""
    add = Node("add", ("total", "part", "i"), ("total",))
    steady = Loop(add, times="n", carry=("total",), scan={"parts": "part"}, index="i", collect={"total": "totals"})
    shift = Loop(
        Node("shift", {"x": "line", "first": "head"}, {"x": "line"}),
        times=2,
        carry=("line",),
        scan={"line": "head"},
        name="shift",
    )
    same = [Node(name, {"x": wire}, {"y": "y"}, "same") for name, wire in (("yes", "totals"), ("no", "parts"))]
    choice = Branch("flag", {"true": same[0], "false": same[1]})
    copy = Node("copy", {"x": "parts"}, {"y": "line"}, "same")
    inputs, outputs = ("total", "parts", "n", "flag"), ("total", "totals", "line", "y")
    walk = Walk("w", Sequential((steady, copy, shift, choice)), inputs, outputs)
    functions = {
        "add": lambda b: {"total": b["total"] * 2 + b["part"] + b["i"]},
        "shift": lambda b: {"x": b["x"].roll(1, 1) + b["first"][:, None]},
        "same": lambda b: {"y": b["x"]},
    }
    graph = Graph("g", {name: toys.Counted(f) for name, f in functions.items()}, {"w": walk})
    parts = torch.arange(10.0).reshape(2, 5)
    with Runtime(graph) as runtime:
        for n, flag in ((1, True), (4, False), (5, True)):
            values = {"total": torch.ones(2), "parts": parts, "n": n, "flag": flag}
            result = runtime.submit("w", values).result(20)
            assert toys.equal(result.outputs, toys.by_hand(graph, "w", values))
            totals, total = [], torch.ones(2)
            for i in range(n):
                total = total * 2 + parts[:, i] + i
                totals.append(total)
            assert torch.equal(result.outputs["totals"], torch.stack(totals, 1))
            once = parts.roll(1, 1) + parts[:, :1]
            assert torch.equal(result.outputs["line"], once.roll(1, 1) + parts[:, 1:2])
            assert result.loop_ends["loop"].iterations == n


# --- failures -------------------------------------------------------------------------------------------------------


def poison(b: Batch) -> dict[str, Any]:
    if (b["x"] < 0).any():
        raise ValueError("negative")
    return {"y": b["x"] + 1}


def test_a_failure_stays_with_its_own_request(toys: SimpleNamespace, caplog: pytest.LogCaptureFixture) -> None:
    graph = toys.one_node(poison)
    with Runtime(graph) as runtime:
        with toys.Held(runtime):
            futures = [runtime.submit("work", {"x": torch.tensor([float(v)])}) for v in (1, -1, 2, 3)]
        with pytest.raises(ComponentError, match="component 'work' failed: ValueError: negative") as caught:
            futures[1].result(20)
        assert [futures[i].result(20).outputs["y"].item() for i in (0, 2, 3)] == [2.0, 3.0, 4.0]
        assert runtime.submit("work", {"x": torch.ones(1)}).result(20).outputs["y"].item() == 2.0
    assert isinstance(caught.value.__cause__, ValueError)
    assert caught.value.__cause__.__traceback__ is None  # frames would keep the tensors of the call alive
    assert "Traceback" in caplog.text


@pytest.mark.parametrize("wrong", [{}, {"z": 1}, {"y": 1, "z": 2}, None, (1,), torch.zeros(1)])
@pytest.mark.parametrize("requests", [1, 2])
def test_an_answer_with_other_ports_is_the_components_fault(toys: SimpleNamespace, wrong: Any, requests: int) -> None:
    with Runtime(toys.one_node(lambda b: wrong)) as runtime:
        with toys.Held(runtime):
            futures = [runtime.submit("work", {"x": torch.ones(1)}) for _ in range(requests)]
        for future in futures:
            with pytest.raises(ComponentError, match=r"component 'work' gave .* but node 'work' declares \['y'\]"):
                future.result(20)


def test_our_own_errors_pass_as_they_are(toys: SimpleNamespace) -> None:
    def refuse(b: Batch) -> dict[str, Any]:
        raise LimitExceededError("too long")

    with Runtime(toys.one_node(refuse)) as runtime, pytest.raises(LimitExceededError, match="too long"):
        runtime.submit("work", {"x": torch.ones(1)}).result(20)


@pytest.mark.parametrize("raised", [SystemExit(3), KeyboardInterrupt(), MemoryError("all gone")])
def test_not_even_an_exit_in_a_component_stops_the_worker(toys: SimpleNamespace, raised: BaseException) -> None:
    def leave(b: Batch) -> dict[str, Any]:
        if b["x"].item() < 0:
            raise raised
        return {"y": b["x"]}

    with Runtime(toys.one_node(leave)) as runtime:
        with pytest.raises(ComponentError, match=type(raised).__name__):
            runtime.submit("work", {"x": -torch.ones(1)}).result(20)
        assert runtime.submit("work", {"x": torch.ones(1)}).result(20)


def test_what_goes_wrong_between_calls_stays_with_the_request_too(toys: SimpleNamespace) -> None:
    cases = {"left": Node("left", ("x",), ("y",), "work"), "right": Node("right", ("x",), ("y",), "work")}
    walk = Walk("choose", Branch("way", cases), ("x", "way"), ("y",))
    graph = Graph("g", {"work": toys.Counted(lambda b: {"y": b["x"]})}, {"choose": walk})
    with Runtime(graph) as runtime:
        with pytest.raises(InvalidInputError, match="has no case"):
            runtime.submit("choose", {"x": torch.ones(1), "way": "up"}).result(20)
        assert runtime.submit("choose", {"x": torch.ones(1), "way": "left"}).result(20)


def test_a_policy_that_fails_ends_its_own_request(toys: SimpleNamespace) -> None:
    class Broken:
        def start(self, loop: str, values: Any) -> Any:
            raise ZeroDivisionError("policy")

    with Runtime(toys.plan_graph()) as runtime:
        with pytest.raises(ComponentError, match=r"walk 'plan' after node '(see|aim)' failed: ZeroDivisionError"):
            runtime.submit("plan", toys.plan_values(), policy=Broken()).result(20)
        assert runtime.submit("plan", toys.plan_values()).result(20)


# --- ends: cancel, deadline, soft budget -----------------------------------------------------------------------------


def endless(toys: SimpleNamespace) -> tuple[Graph, threading.Event]:
    """A loop that would run for hours, and an event that says that it is running."""
    running = threading.Event()

    def tick(b: Batch) -> dict[str, Any]:
        running.set()
        time.sleep(0.001)
        return {"x": b["x"] + 1, "cost": -b["x"]}

    loop = Loop(Node("tick", ("x",), ("x", "cost")), times=10_000_000, carry=("x",), anytime=True, name="forever")
    walk = Walk("forever", loop, ("x",), ("x", "cost"))
    components = {"tick": toys.Counted(tick), "gate": toys.Gate()}
    return Graph("g", components, {"forever": walk, "gate": toys.one_node_walk("gate")}), running


def test_cancel_in_the_middle_of_a_loop_frees_everything(toys: SimpleNamespace) -> None:
    graph, running = endless(toys)
    with Runtime(graph) as runtime:
        x = torch.zeros(1)
        alive = weakref.ref(x)
        request = runtime.submit("forever", {"x": x})
        del x
        assert running.wait(20)
        assert request.cancel()
        assert request.cancelled()
        assert request.done()
        with pytest.raises(CancelledError):
            request.result(0)
        assert not request.cancel()
        gc.collect()
        assert toys.eventually(lambda: alive() is None), "the cancelled request still holds its input"
        calls = len(graph.components["tick"].sizes)
        time.sleep(0.03)
        assert len(graph.components["tick"].sizes) <= calls + 1


def test_a_finished_request_leaves_nothing_in_the_worker(toys: SimpleNamespace) -> None:
    with Runtime(toys.plan_graph()) as runtime:
        values = toys.plan_values()
        alive = weakref.ref(values["x"])
        request = runtime.submit("plan", values)
        request.result(20)
        del values
        gc.collect()
        assert toys.eventually(lambda: alive() is None)


def test_cancel_while_waiting_never_runs(toys: SimpleNamespace) -> None:
    graph = toys.one_node(lambda b: {"y": b["x"]})
    with Runtime(graph) as runtime:
        with toys.Held(runtime):
            request = runtime.submit("work", {"x": torch.zeros(1)})
            assert request.cancel()
        runtime.submit("work", {"x": torch.zeros(1)}).result(20)
    assert len(graph.components["work"].sizes) == 1


def test_cancel_after_the_end_changes_nothing(toys: SimpleNamespace) -> None:
    with Runtime(toys.plan_graph()) as runtime:
        request = runtime.submit("plan", toys.plan_values())
        request.result(20)
        assert not request.cancel()
        assert not request.cancelled()
        assert request.result(0).outputs


def test_a_deadline_ends_a_running_request(toys: SimpleNamespace) -> None:
    graph, _ = endless(toys)
    with Runtime(graph) as runtime:
        began = time.monotonic()
        with pytest.raises(DeadlineError, match=r"walk 'forever' passed its deadline of 0.05 s"):
            runtime.submit("forever", {"x": torch.zeros(1)}, deadline_s=0.05).result(20)
        assert time.monotonic() - began < 5


def test_a_deadline_ends_a_waiting_request(toys: SimpleNamespace) -> None:
    graph = toys.one_node(lambda b: {"y": b["x"]})
    with Runtime(graph) as runtime:
        with toys.Held(runtime):
            late = runtime.submit("work", {"x": torch.zeros(1)}, deadline_s=0.01)
            time.sleep(0.03)
        with pytest.raises(DeadlineError):
            late.result(20)
    assert graph.components["work"].sizes == []


def test_a_deadline_ends_one_of_several(toys: SimpleNamespace) -> None:
    graph, _ = endless(toys)
    with Runtime(graph) as runtime:
        with toys.Held(runtime):
            late = runtime.submit("forever", {"x": torch.zeros(1)}, deadline_s=0.1)
            other = runtime.submit("forever", {"x": torch.zeros(1)}, soft_time_s=0.3)
        with pytest.raises(DeadlineError):
            late.result(20)
        assert other.result(20).loop_ends["forever"].stop is LoopStop.BUDGET


def test_a_soft_budget_ends_an_anytime_loop_with_what_it_has(toys: SimpleNamespace) -> None:
    graph, _ = endless(toys)
    with Runtime(graph) as runtime:
        result = runtime.submit("forever", {"x": torch.zeros(1)}, soft_time_s=0.05).result(20)
    end = result.loop_ends["forever"]
    assert end.stop is LoopStop.BUDGET
    assert end.iterations >= 1
    assert result.outputs["x"].item() == end.iterations


def test_a_soft_budget_gives_the_best_so_far(toys: SimpleNamespace) -> None:
    with Runtime(toys.plan_graph()) as runtime:
        result = runtime.submit("plan", toys.plan_values(iterations=1_000_000), soft_time_s=0.05).result(20)
    end = result.loop_ends["search"]
    assert end.stop is LoopStop.BUDGET
    assert result.outputs["costs"].shape == (1, end.iterations)
    assert torch.equal(result.outputs["best_cost"], result.outputs["costs"].min(1).values)


# --- streams ---------------------------------------------------------------------------------------------------------


def test_a_stream_gives_values_as_they_come_and_then_the_result(toys: SimpleNamespace) -> None:
    values = toys.plan_values(2)
    with Runtime(toys.plan_graph()) as runtime:
        events = list(runtime.stream("plan", values, emit=("cost", "z", "best_cost")))
        alone = runtime.submit("plan", values).result(20)
    assert isinstance(events[-1], Done)
    assert toys.equal(events[-1].result.outputs, alone.outputs)
    values_of = {name: [e for e in events[:-1] if isinstance(e, Value) and e.name == name] for name in ("cost", "z")}
    assert [e.index for e in values_of["cost"]] == [0, 1, 2]
    assert torch.equal(torch.stack([e.value for e in values_of["cost"]], 1), alone.outputs["costs"])
    assert len(values_of["z"]) == 1
    assert isinstance(events[-2], Value)
    assert events[-2].name == "best_cost"


def test_a_streams_values_come_before_the_end(toys: SimpleNamespace) -> None:
    graph, _ = endless(toys)
    with Runtime(graph) as runtime:
        with runtime.stream("forever", {"x": torch.zeros(1)}, emit=("x",)) as events:
            first = [next(events) for _ in range(3)]
            assert [e.value.item() for e in first] == [1.0, 2.0, 3.0]
            assert not events.request.done()
        assert events.request.cancelled()
        assert list(events) == []


def test_a_forgotten_stream_takes_its_request_back(toys: SimpleNamespace) -> None:
    graph, running = endless(toys)
    with Runtime(graph) as runtime:
        events = runtime.stream("forever", {"x": torch.zeros(1)}, emit=("x",))
        request = events.request
        assert running.wait(20)
        del events
        gc.collect()
        assert request.cancelled()


def test_a_streams_error_comes_in_place_of_the_end(toys: SimpleNamespace) -> None:
    with Runtime(toys.one_node(poison)) as runtime:
        events = runtime.stream("work", {"x": -torch.ones(1)}, emit=("y",))
        with pytest.raises(ComponentError):
            next(events)
        assert list(events) == []


def test_a_stream_of_an_unknown_wire_is_refused(toys: SimpleNamespace) -> None:
    with Runtime(toys.plan_graph()) as runtime, pytest.raises(NotFoundError, match="did you mean 'cost'"):
        runtime.stream("plan", toys.plan_values(), emit=("cosst",))


# --- several groups --------------------------------------------------------------------------------------------------


def test_parallel_branches_on_two_groups_run_at_the_same_time(toys: SimpleNamespace) -> None:
    both = threading.Barrier(2, timeout=20)

    def meet(b: Batch) -> dict[str, Any]:
        both.wait()  # breaks unless the other branch is running now
        return {"y": b["x"] + 1}

    step = Sequential(
        (
            Parallel((Node("a", {"x": "x"}, {"y": "ya"}), Node("b", {"x": "x"}, {"y": "yb"}))),
            Node("sum", ("ya", "yb"), ("y",)),
        )
    )
    components = {
        "a": toys.Counted(meet),
        "b": toys.Counted(meet),
        "sum": toys.Counted(lambda v: {"y": v["ya"] + v["yb"]}),
    }
    graph = Graph("g", components, {"w": Walk("w", step, ("x",), ("y",))})
    config = {"groups": {"left": {}, "right": {"threads": 1}}, "nodes": {"w/b": "right", "*": "left"}}
    with Runtime(graph, placement=Placement.from_config(config, graph)) as runtime:
        for i in range(20):
            assert runtime.submit("w", {"x": torch.tensor([float(i)])}).result(20).outputs["y"].item() == 2 * i + 2


@settings(deadline=None, max_examples=25)
@given(
    kinds=st.lists(st.tuples(st.integers(0, 99), st.integers(1, 3), st.integers(1, 3)), min_size=1, max_size=6),
    homes=st.lists(st.sampled_from("abc"), min_size=6, max_size=6),
)
def test_any_placement_gives_the_same_values(toys: SimpleNamespace, kinds: list[Any], homes: list[str]) -> None:
    graph = toys.plan_graph()
    nodes = {f"plan/{n.name}": home for n, home in zip(graph.walks["plan"].nodes, homes, strict=True)}
    config = {"groups": {g: {} for g in {*homes, "a"}}, "nodes": {**nodes, "gate": "a"}}
    requests = [toys.plan_values(s, rows=rows, iterations=iterations) for s, rows, iterations in kinds]
    alone = [toys.by_hand(toys.plan_graph(), "plan", values) for values in requests]
    with Runtime(graph, placement=Placement.from_config(config, graph)) as runtime:
        futures = [runtime.submit("plan", values) for values in requests]
        together = [future.result(20).outputs for future in futures]
    assert all(toys.equal(a, b) for a, b in zip(together, alone, strict=True))


@pytest.mark.parametrize("groups", [("think", "talk"), ("both", "both")])
@pytest.mark.parametrize("requests", [1, 3])
def test_a_stream_between_branches_brings_every_item_in_order(
    toys: SimpleNamespace, groups: tuple[str, str], requests: int
) -> None:
    producer = Loop(Node("decode", ("t",), ("t", "token")), times=20, carry=("t",), name="thinker")
    consumer = Loop(
        Sequential((Node("codec", ("chunk", "acc"), ("acc",)),)), stream="chunk", carry=("acc",), name="talker"
    )
    step = Parallel((producer, consumer), (Stream("token", "chunk", FixedChunks(3)),))
    components = {
        "decode": toys.Counted(lambda b: {"t": b["t"] + 1, "token": b["t"]}),
        "codec": toys.Counted(lambda b: {"acc": b["acc"] * 10 + b["chunk"].sum(1)}),
    }
    graph = Graph("g", components, {"talk": Walk("talk", step, ("t", "acc"), ("t", "acc"))})
    config = {"groups": dict.fromkeys(groups), "nodes": {"talk/decode": groups[0], "talk/codec": groups[1]}}
    values = {"t": torch.zeros(1, dtype=torch.int64), "acc": torch.zeros(1, dtype=torch.int64)}
    with Runtime(graph, placement=Placement.from_config(config, graph)) as runtime:
        futures = [runtime.submit("talk", values) for _ in range(requests)]
        for future in futures:
            assert toys.equal(future.result(20).outputs, toys.by_hand(graph, "talk", values))


def test_cancel_reaches_all_groups(toys: SimpleNamespace) -> None:
    running = threading.Barrier(3, timeout=20)
    leave = threading.Event()

    def wait(b: Batch) -> dict[str, Any]:
        running.wait()
        leave.wait(20)
        return {"y": b["x"]}

    step = Sequential((Parallel((Node("a", {"x": "x"}, {"y": "ya"}, "w"), Node("b", {"x": "x"}, {"y": "yb"}, "w"))),))
    graph = Graph("g", {"w": toys.Counted(wait)}, {"w": Walk("w", step, ("x",), ("ya", "yb"))})
    placement = Placement.from_config({"groups": {"l": {}, "r": {}}, "nodes": {"w/a": "l", "w/b": "r"}}, graph)
    with Runtime(graph, placement=placement) as runtime:
        x = torch.zeros(1)
        alive = weakref.ref(x)
        request = runtime.submit("w", {"x": x})
        del x
        running.wait()
        request.cancel()
        leave.set()
        with pytest.raises(CancelledError):
            request.result(0)
        assert toys.eventually(lambda: alive() is None)


# --- the door --------------------------------------------------------------------------------------------------------


def test_mistakes_are_told_at_the_door(toys: SimpleNamespace) -> None:
    graph = toys.plan_graph()
    with Runtime(graph) as runtime:
        with pytest.raises(NotFoundError, match="has no walk 'plam'; did you mean 'plan'"):
            runtime.submit("plam", {})
        with pytest.raises(NotFoundError, match="no graph 'tox'; did you mean 'toy'"):
            runtime.submit("plan", toys.plan_values(), graph="tox")
        with pytest.raises(InvalidInputError, match="needs input 'x'"):
            runtime.submit("plan", {})
        for name in ("deadline_s", "soft_time_s"):
            for bad in (0.0, -1.0, float("nan"), float("inf")):
                with pytest.raises(InvalidInputError, match=name):
                    runtime.submit("plan", toys.plan_values(), **{name: bad})
    two = {"a": toys.one_node(lambda b: {"y": b["x"] + 1}), "b": toys.one_node(lambda b: {"y": b["x"] + 2})}
    with Runtime(two) as runtime:
        with pytest.raises(InvalidInputError, match="graphs a, b; say which"):
            runtime.submit("work", {"x": torch.zeros(1)})
        assert runtime.submit("work", {"x": torch.zeros(1)}, graph="b").result(20).outputs["y"].item() == 2.0


def test_a_full_house_says_when_to_come_back(toys: SimpleNamespace) -> None:
    config = RuntimeConfig(admission=AdmissionConfig(max_requests=4, max_per_session=2))
    x = {"x": torch.zeros(1)}
    with Runtime(toys.one_node(lambda b: {"y": b["x"]}), config=config) as runtime:
        with toys.Held(runtime):
            first = [runtime.submit("work", x, session="a") for _ in range(2)]
            with pytest.raises(OverloadedError, match="session 'a' has 2 requests"):
                runtime.submit("work", x, session="a")
            last = runtime.submit("work", x, session="b")
            with pytest.raises(OverloadedError, match="4 requests are in the queue") as caught:
                runtime.submit("work", x, session="c")
            assert 0 < caught.value.retry_after_s <= 5
            first[0].cancel()  # a cancelled request's place is free at once
            again = runtime.submit("work", x, session="c")
        for future in (first[1], last, again):
            future.result(20)


def test_close_drains(toys: SimpleNamespace) -> None:
    runtime = Runtime(toys.plan_graph())
    futures = [runtime.submit("plan", toys.plan_values(i)) for i in range(5)]
    runtime.close()
    assert all(future.done() and future.exception() is None for future in futures)
    assert toys.workers_alive() == []
    with pytest.raises(UnavailableError, match="closed"):
        runtime.submit("plan", toys.plan_values())
    runtime.close()


def test_close_without_draining_cancels(toys: SimpleNamespace) -> None:
    graph, running = endless(toys)
    runtime = Runtime(graph)
    request = runtime.submit("forever", {"x": torch.zeros(1)})
    assert running.wait(20)
    runtime.close(drain=False)
    with pytest.raises(CancelledError):
        request.result(0)
    assert toys.workers_alive() == []


def test_close_drains_for_so_long(toys: SimpleNamespace) -> None:
    graph, _ = endless(toys)
    runtime = Runtime(graph)
    request = runtime.submit("forever", {"x": torch.zeros(1)})
    runtime.close(timeout_s=0.05)
    assert request.cancelled()


def test_an_error_in_the_with_block_does_not_wait_for_the_rest(toys: SimpleNamespace) -> None:
    graph, _ = endless(toys)
    submitted: list[Any] = []

    def fail() -> None:
        with Runtime(graph) as runtime:
            submitted.append(runtime.submit("forever", {"x": torch.zeros(1)}))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert submitted[0].cancelled()


def test_a_forgotten_runtime_ends_its_threads(toys: SimpleNamespace) -> None:
    runtime = Runtime(toys.plan_graph())
    runtime.submit("plan", toys.plan_values()).result(20)
    del runtime
    gc.collect()
    assert toys.eventually(lambda: toys.workers_alive() == [])


def test_submissions_from_many_threads(toys: SimpleNamespace) -> None:
    graph = toys.plan_graph()
    wrong: list[int] = []

    def client(i: int) -> None:
        for k in range(5):
            values = toys.plan_values(10 * i + k)
            got = runtime.submit("plan", values, session=str(i)).result(20).outputs
            if not toys.equal(got, toys.by_hand(toys.plan_graph(), "plan", values)):
                wrong.append(10 * i + k)

    with Runtime(graph) as runtime:
        threads = [threading.Thread(target=client, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


def test_callbacks_may_submit(toys: SimpleNamespace) -> None:
    chain: list[float] = []
    done = threading.Event()
    with Runtime(toys.one_node(lambda b: {"y": b["x"] + 1})) as runtime:

        def on(future: Any) -> None:
            y = future.result().outputs["y"]
            chain.append(y.item())
            if len(chain) == 5:
                done.set()
            else:
                runtime.submit("work", {"x": y}).add_done_callback(on)

        runtime.submit("work", {"x": torch.zeros(1)}).add_done_callback(on)
        assert done.wait(20)
    assert chain == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("groups", [1, 3])
def test_nothing_is_left_after_a_storm(toys: SimpleNamespace, groups: int) -> None:
    """Cancels, deadlines, budgets, failures and clean runs at once: each request ends in its own way, and only so."""
    graph = toys.plan_graph()
    refit = graph.components["refit"].function

    def sometimes(b: Batch) -> dict[str, Any]:
        if (b["mean"] > 1e6).any():
            raise ValueError("too large")
        time.sleep(0.0002)
        return refit(b)  # type: ignore[no-any-return]

    graph.components["refit"].function = sometimes
    homes = {f"plan/{n.name}": f"g{i % groups}" for i, n in enumerate(graph.walks["plan"].nodes)}
    config = {"groups": {f"g{i}": {} for i in range(groups)}, "nodes": {**homes, "*": "g0"}}
    dice = random.Random(7)
    with Runtime(graph, placement=Placement.from_config(config, graph)) as runtime:
        requests = []
        for i in range(120):
            values = toys.plan_values(i, rows=dice.choice((1, 2)), iterations=dice.choice((1, 3, 20)))
            kind = dice.choice(("clean", "clean", "cancel", "deadline", "fail", "soft"))
            values["mean"] = values["mean"] + (1e9 if kind == "fail" else 0)
            deadline_s = dice.uniform(1e-4, 0.02) if kind == "deadline" else None
            soft_time_s = dice.uniform(1e-3, 0.02) if kind == "soft" else None
            session = dice.choice("abc")
            request = runtime.submit("plan", values, deadline_s=deadline_s, soft_time_s=soft_time_s, session=session)
            if kind == "cancel":
                threading.Timer(dice.uniform(0, 0.02), request.cancel).start()
            requests.append((kind, values, request))
        for kind, values, request in requests:
            error = request.exception(20)
            expected = {"cancel": CancelledError, "deadline": DeadlineError, "fail": ComponentError}.get(kind)
            assert error is None or type(error) is expected, (kind, error)
            assert kind != "fail" or error is not None
            if kind == "clean":
                assert toys.equal(request.result().outputs, toys.by_hand(toys.plan_graph(), "plan", values))
        assert toys.eventually(lambda: len(runtime._admission) == 0)
        workers = runtime._executor._workers.values()
        assert toys.eventually(lambda: all(not w._scheduler and not w._inbox for w in workers))
