"""One request on its walk: what is ready when, what streams hold, and what wrong inputs and answers are told."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from walk_driver import run

from mstar_plan.errors import ComponentError, InvalidInputError, WalkError
from mstar_plan.walks.component import FunctionComponent
from mstar_plan.walks.loop_run import LoopEnd, LoopStop
from mstar_plan.walks.state import WalkState
from mstar_plan.walks.step import Branch, Loop, Node, Parallel, Sequential, Step
from mstar_plan.walks.stream import FixedChunks, Stream
from mstar_plan.walks.walk import Walk

X = torch.ones(1)


def walk(step: Step, inputs: str = "x", outputs: str = "y") -> Walk:
    return Walk("w", step, tuple(inputs.split()), tuple(outputs.split()))


F, G = Node("f", ("x",), ("y",)), Node("g", ("x",), ("z",))


def names(state: WalkState) -> list[str]:
    return [node.name for node in state.ready()]


def test_nodes_become_ready_when_what_they_read_is_there() -> None:
    join = Node("join", ("y", "z"), ("sum",))
    state = WalkState(walk(Sequential((Parallel((F, G)), join)), outputs="sum"), {"x": X})
    assert names(state) == ["f", "g"]
    assert state.sole() is None
    state.complete(G, {"z": X * 3})
    assert names(state) == ["f"]
    assert state.sole() is F
    state.complete(F, {"y": X * 2})
    batch = state.inputs_of(state.ready()[0])
    assert batch.values == {"y": X * 2, "z": X * 3}
    assert not state.finished
    state.complete(join, {"sum": X * 5})
    assert state.finished
    assert state.sole() is None
    assert names(state) == []
    assert state.outputs() == {"sum": X * 5}


def test_a_request_has_one_row_if_no_tensor_says_more() -> None:
    made = walk(F)
    assert WalkState(made, {"x": "text"}).size == 1
    assert WalkState(made, {"x": torch.zeros(3, 2)}).size == 3


def test_a_walk_without_nodes_has_finished_when_it_begins() -> None:
    state = WalkState(walk(Sequential(), outputs="x"), {"x": 5})
    assert state.finished
    assert state.outputs() == {"x": 5}


@pytest.mark.parametrize(
    ("values", "pieces"),
    [
        ({}, ("walk 'w'", "needs input 'x'", "got []")),
        ({"x": X, "xx": X}, ("walk 'w'", "no input 'xx'", "did you mean 'x'?")),
        ({"x": torch.tensor(1.0)}, ("input 'x'", "scalar", "shape [B]")),
        ({"x": torch.zeros(0, 3)}, ("input 'x'", "(0, 3)", "no row", "at least one")),
    ],
)
def test_wrong_inputs_are_told_with_their_cure(values: dict[str, Any], pieces: tuple[str, ...]) -> None:
    with pytest.raises(InvalidInputError) as raised:
        WalkState(walk(F), values)
    for piece in pieces:
        assert piece in str(raised.value)


def test_inputs_of_different_rows() -> None:
    two = walk(Node("f", ("x", "p"), ("y",)), "x p")
    with pytest.raises(InvalidInputError, match=r"walk 'w' differ .*\{'x': 1, 'p': 2\}; send as many rows"):
        WalkState(two, {"x": X, "p": torch.zeros(2)})


@pytest.mark.parametrize(
    ("answer", "gave"),
    [
        ({}, r"\[\]"),
        ({"yy": X}, r"\['yy'\]"),
        ({"y": X, "q": X}, r"\['q', 'y'\]"),
        (X, "a Tensor"),
        (None, "a NoneType"),
    ],
)
def test_an_answer_with_wrong_ports_names_component_and_node(answer: Any, gave: str) -> None:
    state = WalkState(walk(Node("f", ("x",), ("y",), "net")), {"x": X})
    with pytest.raises(ComponentError, match=rf"component 'net' gave {gave}.* node 'f' declares \['y'\]"):
        state.complete(state.ready()[0], answer)


# --- branches -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "case"),
    [
        (True, "true"), (False, "false"), ("true", "true"), (3, "3"), (None, "None"), (torch.tensor([True]), "true"),
        (torch.tensor([3, 3]), "3"), (torch.tensor([[3], [3]]), "3"),
    ],
)  # fmt: skip
def test_a_branch_runs_the_case_that_the_value_names(value: Any, case: str) -> None:
    cases = {name: Node(name, ("x",), ("y",)) for name in ("true", "false", "3", "None")}
    state = WalkState(walk(Branch("x", cases)), {"x": value})
    assert names(state) == [case]


def test_an_unknown_case_and_rows_that_differ() -> None:
    made = walk(Branch("x", {"accept": F, "repair": Node("h", ("x",), ("y",))}))
    with pytest.raises(WalkError, match=r"branch on 'x' got 'acept', which has no case; did you mean 'accept'\?"):
        WalkState(made, {"x": "acept"})
    with pytest.raises(InvalidInputError, match=r"branch on 'x' got .*rows that differ \(\[True, False\]\).* one case"):
        WalkState(made, {"x": torch.tensor([True, False])})


# --- side by side ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parallel", [Parallel(()), Parallel((Sequential(),)), Parallel((Parallel(()), Sequential()))])
def test_branches_with_nothing_to_do_end_at_once(parallel: Parallel) -> None:
    assert run({"f": lambda b: {"y": b["x"]}}, walk(Sequential((parallel, F))), {"x": X}).outputs == {"y": X}


def test_any_number_of_empty_rounds_needs_no_stack() -> None:
    none = Branch("flag", {"true": Node("n", (), ()), "false": Sequential()})
    body = Parallel((none, Loop(Sequential(), 2, name="in")))
    state = WalkState(walk(Sequential((Loop(body, 5000), F)), "x flag"), {"x": X, "flag": False})
    assert names(state) == ["f"]
    assert state.loop_ends["loop"] == LoopEnd(LoopStop.COUNT, 5000)


# --- streams --------------------------------------------------------------------------------------------------------


def counter(most: int, **options: Any) -> Loop:
    """Writes v = 1, 2, 3, ..."""
    return Loop(Node("count", ("v",), ("v",)), most, carry={"v": "x"}, name="counting", **options)


def adder(**options: Any) -> Loop:
    """Adds up its chunks."""
    return Loop(Node("add", ("vs", "sum"), ("sum",)), stream="vs", carry={"sum": "x"}, name="adding", **options)


COMPONENTS: dict[str, Callable[..., Any]] = {
    "count": lambda b: {"v": b["v"] + 1},
    "add": lambda b: {"sum": b["sum"] + b["vs"].sum(1)},
    "f": lambda b: {"y": b["x"]},
    "both": lambda b: {"sum": b["sum"] + b["vs"].sum(1), "enough": b["vs"].amax(1) >= 4},
}
ZERO = {"x": torch.zeros(1)}


def streaming(producer: Step, consumer: Step, size: int = 1, new: str | None = None) -> Parallel:
    return Parallel((producer, consumer), (Stream("v", "vs", FixedChunks(size), new),))


def test_a_consumer_waits_and_is_woken() -> None:
    state = WalkState(walk(streaming(counter(3), adder(), 2), outputs="sum"), ZERO)
    count, add = state.walk.nodes
    seen = []
    for n in (1, 2, 3):
        seen.append(names(state))
        state.complete(count, {"v": torch.tensor([float(n)])})
    assert seen == [["count"], ["count"], ["add", "count"]]
    assert names(state) == ["add"]
    assert state.inputs_of(add).values["vs"].tolist() == [[1, 2]]
    state.complete(add, {"sum": torch.tensor([3.0])})
    assert state.inputs_of(add).values["vs"].tolist() == [[3]], "the last chunk is shorter"
    state.complete(add, {"sum": torch.tensor([6.0])})
    assert state.finished
    assert state.loop_ends == {
        "counting": LoopEnd(LoopStop.COUNT, 3),
        "adding": LoopEnd(LoopStop.STREAM, 2),
    }


def test_a_producer_that_ends_without_items_ends_its_consumer() -> None:
    maybe = Branch("flag", {"true": counter(3), "false": Sequential()})
    made = walk(streaming(maybe, adder()), "x flag", "sum")
    assert run(COMPONENTS, made, {**ZERO, "flag": False}).outputs == {"sum": torch.zeros(1)}
    assert run(COMPONENTS, made, {**ZERO, "flag": True}).outputs == {"sum": torch.tensor([6.0])}


def test_the_count_of_new_items_is_a_static() -> None:
    body = Node("note", ("vs", "fresh"), ("seen",))
    consumer = Loop(body, stream="vs", collect={"seen": "all"}, name="noting")
    made = walk(streaming(counter(5), consumer, 2, "fresh"), outputs="all")
    done = run({**COMPONENTS, "note": lambda b: {"seen": b["fresh"]}}, made, ZERO)
    assert done.outputs == {"all": (2, 2, 1)}


@pytest.mark.parametrize("first", ["count", "add"])
def test_a_stream_in_a_loop_starts_anew_in_every_round(first: str) -> None:
    rounds = Loop(streaming(counter(4), adder(), 3), 3, name="rounds", collect={"sum": "sums"})
    done = run(COMPONENTS, walk(rounds, outputs="sums"), ZERO, choose=lambda r: min(r, key=lambda n: n.name != first))
    assert done.outputs["sums"].tolist() == [[10, 10, 10]]
    assert done.state._sources == done.state._taps == done.state._blocked == {}, "no stream outlives its Parallel"


def test_a_consumer_in_an_inner_branch_of_an_inner_loop_goes_on_where_it_stopped() -> None:
    """Each round takes items until it has enough; the next round gets the following ones."""
    taking = Loop(
        Node("both", ("vs", "sum"), ("sum", "enough")), stream="vs", carry={"sum": "x"}, until="enough", name="taking"
    )
    inner = Loop(Parallel((Branch("flag", {"true": taking}), F)), 3, collect={"sum": "sums"}, name="rounds")
    made = walk(streaming(counter(6), inner), "x flag", "sums y")
    done = run(COMPONENTS, made, {**ZERO, "flag": True})
    assert done.outputs["sums"].tolist() == [[10, 5, 6]]
    drained = walk(streaming(counter(4), inner), "x flag", "sums y")
    done = run(COMPONENTS, drained, {**ZERO, "flag": True})
    assert done.outputs["sums"].tolist() == [[10, 0, 0]], "the stream is used up: no iteration, the first value stays"


def test_a_consumer_out_of_time_leaves_its_chunk_to_the_next_round() -> None:
    note = Node("note", ("vs",), ("seen",))
    once = Loop(note, stream="vs", collect={"seen": "heard"}, anytime=True, name="noting")
    made = walk(streaming(counter(9), Loop(once, 3, collect={"heard": "all"}, name="rounds"), 1), outputs="all")
    state = WalkState(made, ZERO, soft_deadline=0.0, clock=lambda: 1.0)
    while not state.finished:
        node = min(state.ready(), key=lambda n: n.name != "note")
        answer = {"seen": tuple(state.inputs_of(node)["vs"][0].tolist())} if node is note else None
        state.complete(node, answer or COMPONENTS[node.name](state.inputs_of(node)))
    assert state.outputs()["all"] == (((1,),), ((2,),), ((3,),))
    assert state.loop_ends["noting"] == LoopEnd(LoopStop.BUDGET, 1)


def test_one_value_may_feed_two_streams_and_nested_parallels_keep_theirs_apart() -> None:
    inner = Parallel(
        (counter(4), Loop(Node("a", ("in", "p"), ("p",)), stream="in", carry={"p": "x"}, name="pairs")),
        (Stream("v", "in", FixedChunks(2)),),
    )
    outer = Parallel(
        (inner, Loop(Node("b", ("out", "q"), ("q",)), stream="out", carry={"q": "x"}, name="triples")),
        (Stream("v", "out", FixedChunks(3)),),
    )
    components = {
        **COMPONENTS,
        "a": lambda b: {"p": b["p"] * 10 + b["in"].shape[1]},
        "b": lambda b: {"q": b["q"] * 10 + b["out"].shape[1]},
    }
    outputs = run(components, walk(outer, outputs="p q"), ZERO).outputs
    assert outputs == {"p": torch.tensor([22]), "q": torch.tensor([31])}


def test_items_are_let_go_when_their_consumer_has_ended() -> None:
    enough = Loop(
        Node("both", ("vs", "sum"), ("sum", "enough")), stream="vs", carry={"sum": "x"}, until="enough", name="taking"
    )
    state = WalkState(walk(streaming(counter(30), enough), outputs="sum"), ZERO)
    count, both = state.walk.nodes
    alive: list[weakref.ref[Any]] = []
    while not state.finished:
        node = min(state.ready(), key=lambda n: n.name != "both")
        answer = COMPONENTS[node.name](state.inputs_of(node))
        if node is count:
            alive.append(weakref.ref(answer["v"]))
        state.complete(node, answer)
        del answer
        assert sum(ref() is not None for ref in alive) <= 3
    assert state.outputs()["sum"].item() == 10
    assert (len(alive), both.name) == (30, "both")


def test_a_released_request_holds_nothing() -> None:
    state = WalkState(walk(streaming(counter(9), adder(), 3), outputs="sum"), {"x": (x := torch.zeros(1))})
    refs = [weakref.ref(x)]
    for _ in range(2):
        answer = {"v": torch.zeros(1)}
        refs.append(weakref.ref(answer["v"]))
        state.complete(state.ready()[0], answer)
    del x, answer
    gc.disable()
    try:
        state.release()
        assert [ref() for ref in refs] == [None] * 3
        assert state.ready() == []
    finally:
        gc.enable()


def test_writes_are_told_as_they_happen() -> None:
    told: list[tuple[str, Any]] = []
    made = walk(streaming(counter(2, collect={"v": "all"}), adder(), 2), outputs="sum all")
    run(COMPONENTS, made, ZERO, on_write=lambda name, value: told.append((name, value.tolist())))
    assert told == [("v", [1]), ("v", [2]), ("all", [[1, 2]]), ("sum", [3])]


def test_run_alone_gives_what_one_by_one_gives() -> None:
    add_one = FunctionComponent(lambda x: x + 1, ("x",), ("x",))
    rounds = Loop(Node("one", ("x",), ("x",)), 4, carry=("x",), collect={"x": "xs"}, name="ones")
    made = walk(Sequential((rounds, Parallel((F, G)))), outputs="xs y z")
    state, calls = WalkState(made, ZERO), 0

    def call(node: Node, batch: Any) -> Any:
        nonlocal calls
        calls += 1
        return None if calls == 3 else add_one(batch)

    state.run_alone(call)
    assert names(state) == ["one"], "None leaves the node ready"
    state.run_alone(call)
    assert names(state) == ["f", "g"], "it stops where two nodes are ready"
    for node in state.ready():
        state.complete(node, {port: state.values["x"] for port, _ in node.outputs})
    assert state.finished
    assert state.outputs()["xs"].tolist() == [[1, 2, 3, 4]]
