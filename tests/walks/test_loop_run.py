"""Loops: counts, carries, slices, gathered values, the best so far, and every way to end."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_cache import Cache
from walk_driver import Run, run

from mstar_plan.errors import ComponentError, InvalidInputError, LimitExceededError
from mstar_plan.walks.loop_run import LoopEnd, LoopStop
from mstar_plan.walks.step import Best, Collect, Loop, Node, Parallel, Scan, Sequential, Step
from mstar_plan.walks.stream import Stream
from mstar_plan.walks.walk import Walk

NAN = math.nan


def go(step: Step, outputs: str, values: Mapping[str, Any], functions: Mapping[str, Any], **options: Any) -> Run:
    """Runs a walk over `step`; functions take a batch's values and give one output, or a tuple of them."""

    def component(node: Node) -> Any:
        def call(batch: Any) -> dict[str, Any]:
            given = functions[node.name](**batch.values)
            given = given if len(node.outputs) > 1 else (given,)
            return {port: part for (port, _), part in zip(node.outputs, given, strict=True)}

        return call

    walk = Walk("w", step, tuple(values), tuple(outputs.split()))
    return run({node.name: component(node) for node in walk.nodes}, walk, values, **options)


ADD = Node("add", ("x",), ("x",))
PLUS = {"add": lambda x: x + 1}


# --- counts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("times", [3, torch.tensor([3, 3])])
def test_a_request_gives_the_count(times: Any) -> None:
    done = go(Loop(ADD, "n", carry=("x",)), "x", {"x": torch.zeros(2), "n": times}, PLUS)
    assert done.outputs["x"].tolist() == [3, 3]
    assert done.state.loop_ends == {"loop": LoopEnd(LoopStop.COUNT, 3)}


@pytest.mark.parametrize(
    ("times", "message"),
    [
        (0, r"loop 'loop' got count 0 from 'n'; it needs a whole number >= 1"),
        (True, r"count True from 'n'"),
        (2.0, r"count 2.0 from 'n'"),
        ("three", r"count 'three' from 'n'"),
        (torch.tensor([2.5, 2.5]), r"count 2.5"),
        (torch.tensor([2, 3]), r"loop 'loop' got counts \[2, 3\] from 'n'; .* one count"),
    ],
)
def test_a_wrong_count_is_refused(times: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message) as raised:
        go(Loop(ADD, "n", carry=("x",)), "x", {"x": torch.zeros(2), "n": times}, PLUS)
    assert raised.value.field == "n"


def test_a_count_over_the_limit_is_refused_not_clamped() -> None:
    loop = Loop(ADD, "n", carry=("x",), limit=8, name="search")
    with pytest.raises(LimitExceededError, match=r"loop 'search' was asked for 9 iterations; its limit is 8") as raised:
        go(loop, "x", {"x": torch.zeros(1), "n": 9}, PLUS)
    assert raised.value.field == "n"
    assert go(loop, "x", {"x": torch.zeros(1), "n": 8}, PLUS).outputs["x"].item() == 8


# --- carries and slices ---------------------------------------------------------------------------------------------


def test_a_carry_starts_anew_each_time_its_loop_is_entered() -> None:
    inner = Loop(Node("add", {"x": "q"}, {"x": "q"}), 2, carry={"q": "x"}, name="in")
    done = go(Loop(inner, 3, collect={"q": "qs"}), "qs x", {"x": torch.zeros(1)}, PLUS)
    assert done.outputs["qs"].tolist() == [[2, 2, 2]]
    assert done.outputs["x"].tolist() == [0], "the first value is left as it was"


def test_carries_start_from_the_values_before_the_loop() -> None:
    """A swap: neither first value may be the other's new one."""
    swap = Loop(Node("pair", ("a", "b"), ("a", "b")), 1, carry={"a": "b", "b": "a"}, name="in")
    keep = {"pair": lambda a, b: (a * 10, b * 10)}
    done = go(Loop(swap, 2, carry=("a", "b")), "a b", {"a": 1, "b": 2}, keep)
    assert done.outputs == {"a": 100, "b": 200}


def test_the_index_counts_rows_on_the_device_of_the_inputs() -> None:
    note = Node("note", ("i",), ("seen",))
    done = go(
        Sequential((Loop(note, 3, index="i", collect={"seen": "all"}), Node("drop", ("x",), ("y",)))),
        "all y", {"x": torch.zeros(2)}, {"note": lambda i: i, "drop": lambda x: x},
    )  # fmt: skip
    assert done.outputs["all"].tolist() == [[0, 1, 2], [0, 1, 2]]
    assert done.outputs["all"].dtype == torch.int64


def test_the_index_can_be_used_where_gradients_are_recorded() -> None:
    """It is shared by all requests, those that ran in inference mode before included."""
    table = torch.arange(4.0, requires_grad=True)
    loop = Loop(Node("look", ("i", "x"), ("x",)), 3, carry=("x",), index="i")
    look = {"look": lambda i, x: x + table[i]}
    with torch.inference_mode():
        go(loop, "x", {"x": torch.zeros(1)}, look)
    go(loop, "x", {"x": torch.zeros(1)}, look).outputs["x"].sum().backward()
    assert table.grad is not None
    assert table.grad.tolist() == [1, 1, 1, 0]


def test_a_scan_gives_one_view_an_iteration() -> None:
    line = torch.arange(12.0).reshape(2, 3, 2)
    note = Node("note", ("part",), ("seen",))
    along_one = Loop(note, 3, scan={"line": "part"}, collect={"seen": "all"})
    done = go(along_one, "all", {"line": line}, {"note": lambda part: part})
    assert torch.equal(done.outputs["all"], line)
    assert done.state.values["part"].data_ptr() == line[:, 2].data_ptr()
    along_two = Loop(note, 2, scan={"line": Scan("part", 2)}, collect={"seen": Collect("all", 2)})
    other = go(along_two, "all", {"line": line}, {"note": lambda part: part})
    assert torch.equal(other.outputs["all"], line)


@pytest.mark.parametrize("until", [None, "never"], ids=["counted", "watched"])
def test_a_scan_is_of_the_value_before_the_loop_even_if_that_is_carried(until: str | None) -> None:
    shift = Node("shift", ("line", "part"), ("line", "never"))
    functions = {"shift": lambda line, part: (line + part[:, None], torch.zeros(1, dtype=torch.bool))}
    loop = Loop(shift, 3, carry=("line",), scan={"line": "part"}, until=until)
    done = go(loop, "line never", {"line": torch.tensor([[1.0, 10.0, 100.0]])}, functions)
    assert done.outputs["line"].tolist() == [[112, 121, 211]]


@pytest.mark.parametrize(
    ("line", "pieces"),
    [
        (torch.zeros(1, 2), ("loop 'loop'", "runs 3 times", "'line' has only 2", "send as many")),
        (torch.zeros(1), ("loop 'loop'", "'line'", "axis 1", "more axes")),
        ("text", ("loop 'loop'", "'line'", "axis 1")),
    ],
)
def test_what_cannot_be_scanned(line: Any, pieces: tuple[str, ...]) -> None:
    with pytest.raises(InvalidInputError) as raised:
        go(Loop(Node("f", ("part",), ("y",)), 3, scan={"line": "part"}), "y", {"line": line}, {"f": lambda part: part})
    assert all(piece in str(raised.value) for piece in pieces)
    assert raised.value.field == "line"


# --- gathering ------------------------------------------------------------------------------------------------------


def test_collect_stacks_or_joins_along_an_axis() -> None:
    f = Node("f", ("x",), ("y",))
    shapes = {}
    for how in (Collect("all"), Collect("all", 2), Collect("all", 1, concat=True), Collect("all", 2, concat=True)):
        done = go(Loop(f, 3, collect={"y": how}), "all", {"x": torch.zeros(2, 4, 5)}, {"f": lambda x: x})
        shapes[how.dim, how.concat] = tuple(done.outputs["all"].shape)
    assert shapes == {(1, False): (2, 3, 4, 5), (2, False): (2, 4, 3, 5), (1, True): (2, 12, 5), (2, True): (2, 4, 15)}


def test_statics_are_collected_in_a_tuple_and_caches_are_refused() -> None:
    loop = Loop(Node("f", ("x",), ("x",)), 3, carry=("x",), collect={"x": "all"}, name="talk")
    assert go(loop, "all", {"x": "a"}, {"f": lambda x: x + "!"}).outputs["all"] == ("a!", "a!!", "a!!!")
    with pytest.raises(ComponentError, match=r"loop 'talk' collecting 'x' got Cache values; send tensors alone"):
        go(loop, "all", {"x": Cache.of(torch.zeros(1, 2, 2))}, {"f": lambda x: x})


def test_values_that_cannot_be_collected_are_named() -> None:
    grow = {"f": lambda x: torch.cat([x, x], 1)}
    loop = Loop(Node("f", ("x",), ("x",)), 2, carry=("x",), collect={"x": "all"}, name="grow")
    with pytest.raises(ComponentError, match=r"loop 'grow' collecting 'x' got shapes \[\(1, 2\), \(1, 4\)\].* axis 1"):
        go(loop, "all", {"x": torch.zeros(1, 1)}, grow)


@pytest.mark.parametrize("loop", [{"collect": {"c": "all"}}, {"best": Best("c", {"c": "all"})}], ids=str)
def test_nothing_can_be_gathered_from_an_empty_stream(loop: dict[str, Any]) -> None:
    producer = Loop(Node("write", ("x",), ("v",)), 1, name="writing")
    consumer = Loop(Node("f", ("vs",), ("c",)), stream="vs", name="reading", **loop)

    class Never:
        def next_chunk(self, emitted: int, available: int, closed: bool) -> None:
            return None

    step = Parallel((producer, consumer), (Stream("v", "vs", Never()),))
    with pytest.raises(InvalidInputError, match=r"loop 'reading' ran over an empty stream, so there is no .*'all'"):
        go(step, "all", {"x": torch.zeros(1)}, {"write": lambda x: x, "f": lambda vs: vs[:, 0]})


# --- the best so far ------------------------------------------------------------------------------------------------


def best_of(costs: list[list[float]], **options: Any) -> tuple[list[float], list[float]]:
    """Costs [n iterations][B]: the best cost and the iteration it is of, by row."""
    f, best = Node("f", ("cost", "i"), ("c", "n")), Best("c", {"c": "top", "n": "at"})
    loop = Loop(f, len(costs), scan={"line": "cost"}, index="i", best=best)
    line = torch.tensor(costs).T
    done = go(loop, "top at", {"line": line}, {"f": lambda cost, i: (cost, i)}, **options)
    return done.outputs["top"].tolist(), done.outputs["at"].tolist()


def test_the_best_is_kept_row_by_row_and_nan_is_never_better() -> None:
    assert best_of([[3.0], [1.0], [2.0]]) == ([1], [1])
    assert best_of([[3.0, 1.0], [2.0, 2.0], [4.0, 0.0]]) == ([2, 0], [1, 2])
    assert best_of([[NAN, 5.0], [7.0, NAN], [NAN, 6.0]]) == ([7, 5], [1, 0])
    assert best_of([[1.0], [1.0]])[1] == [0], "of equals, the first"
    top, at = best_of([[NAN], [NAN]])
    assert (math.isnan(top[0]), at) == (True, [0])


@settings(deadline=None)
@given(st.lists(st.tuples(*[st.floats(0, 9, width=32) | st.just(NAN)] * 2), min_size=1, max_size=6))
def test_the_best_is_the_minimum(costs: list[tuple[float, float]]) -> None:
    top, _ = best_of([list(row) for row in costs])
    for row, got in enumerate(top):
        real = [cost[row] for cost in costs if not math.isnan(cost[row])]
        assert got == min(real) if real else math.isnan(got)


def test_the_best_of_whole_numbers_and_of_other_kinds_of_values() -> None:
    def f(cost: Any, i: Any) -> tuple[Any, ...]:
        return cost, Cache.of(cost.double()[:, None, None]), "same"

    loop = Loop(
        Node("f", ("cost", "i"), ("c", "cache", "word")), 3, scan={"line": "cost"}, index="i",
        best=Best("c", {"cache": "top", "word": "said"}),
    )  # fmt: skip
    done = go(loop, "top said", {"line": torch.tensor([[3, 1, 2], [1, 2, 0]])}, {"f": f})
    assert done.outputs["top"].dense()[:, 0, 0].tolist() == [1, 0], "a Joinable is taken row by row"
    assert done.outputs["said"] == "same"


@pytest.mark.parametrize(
    ("kept", "message"),
    [
        (lambda i: f"word {int(i[0])}", r"loop 'loop' keeps the best 'v', but cannot take rows .* equal shape"),
        (lambda i: torch.zeros(2, int(i[0]) + 1), r"keeps the best 'v', .*\[2, ...\], or send rows one by one"),
    ],
)
def test_what_cannot_be_taken_row_by_row(kept: Any, message: str) -> None:
    loop = Loop(Node("f", ("cost", "i"), ("c", "v")), 2, scan={"line": "cost"}, index="i", best=Best("c", {"v": "top"}))
    line = torch.tensor([[2.0, 1.0], [1.0, 2.0]])
    with pytest.raises(ComponentError, match=message):
        go(loop, "top", {"line": line}, {"f": lambda cost, i: (cost, kept(i))})


@pytest.mark.parametrize(
    ("cost", "got"), [(torch.zeros(2, 3), r"\(2, 3\)"), (3.0, "float"), (torch.zeros(1), r"\(1,\)")]
)
def test_the_best_needs_one_number_a_row(cost: Any, got: str) -> None:
    loop = Loop(Node("f", ("x",), ("c",)), 2, best=Best("c", {"c": "top"}))
    with pytest.raises(ComponentError, match=rf"loop 'loop' keeps the best by 'c', which is {got}; .* shape \(2,\)"):
        go(loop, "top", {"x": torch.zeros(2)}, {"f": lambda x: cost})


# --- how loops end --------------------------------------------------------------------------------------------------


def ended(until: Any, rows: int = 1) -> LoopEnd:
    loop = Loop(Node("f", ("x", "i"), ("stop",)), 5, index="i", until="stop")
    return go(loop, "stop", {"x": torch.zeros(rows)}, {"f": lambda x, i: until(i)}).state.loop_ends["loop"]


def test_until_ends_the_loop_when_all_rows_agree() -> None:
    assert ended(lambda i: i == 2) == LoopEnd(LoopStop.UNTIL, 3)
    assert ended(lambda i: i >= torch.tensor([1, 3]), rows=2) == LoopEnd(LoopStop.UNTIL, 4)
    assert ended(lambda i: i < 0) == LoopEnd(LoopStop.COUNT, 5)
    assert ended(lambda i: bool(i[0] == 1)) == LoopEnd(LoopStop.UNTIL, 2), "a bool will do"
    with pytest.raises(ComponentError, match=r"loop 'loop' ends when 'stop' is true, but it is 'yes'; write a bool"):
        ended(lambda i: "yes")


class Clock:
    """Every look at it takes a second."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


@pytest.mark.parametrize(("deadline", "iterations"), [(0.0, 1), (4.0, 2), (6.0, 3), (100.0, 5)])
def test_an_anytime_loop_ends_before_an_iteration_that_would_be_late(deadline: float, iterations: int) -> None:
    loop = Loop(ADD, 5, carry=("x",), collect={"x": "all"}, anytime=True)
    done = go(loop, "all", {"x": torch.zeros(1)}, PLUS, clock=Clock(), soft_deadline=deadline)
    stop = LoopStop.COUNT if iterations == 5 else LoopStop.BUDGET
    assert done.state.loop_ends["loop"] == LoopEnd(stop, iterations)
    assert done.outputs["all"].tolist() == [list(range(1, iterations + 1))]


def test_a_loop_that_is_not_anytime_ignores_the_budget() -> None:
    done = go(Loop(ADD, 5, carry=("x",)), "x", {"x": torch.zeros(1)}, PLUS, clock=Clock(), soft_deadline=0.0)
    assert done.outputs["x"].item() == 5


class Watch:
    """A compute policy that ends the loop "watched" after two iterations, and lays a mask over each."""

    def __init__(self) -> None:
        self.started: list[str] = []

    def start(self, loop: str, values: Mapping[str, Any]) -> Any:
        self.started.append(loop)
        return self if loop == "watched" else None

    def before(self, iteration: int, values: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"x": values["x"] * 10}

    def after(self, iteration: int, values: Mapping[str, Any]) -> bool:
        return iteration == 1


def test_a_policy_may_change_values_and_end_the_loop() -> None:
    watch = Watch()
    loop = Loop(ADD, 5, carry=("x",), name="watched")
    other = Loop(Node("more", {"x": "x"}, {"x": "x"}), 2, carry=("x",), name="other")
    step = Sequential((loop, other))
    done = go(step, "x", {"x": torch.zeros(1)}, {**PLUS, "more": lambda x: x + 100}, policy=watch)
    assert done.outputs["x"].item() == 211
    assert watch.started == ["watched", "other"]
    assert done.state.loop_ends["watched"] == LoopEnd(LoopStop.POLICY, 2)
