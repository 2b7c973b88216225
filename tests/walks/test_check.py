"""Every mistake that a walk's shape can show is a WalkError that names the step, the value and the cure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from walk_driver import run

from mstar_plan.errors import WalkError
from mstar_plan.walks.step import Best, Branch, Collect, Loop, Node, Parallel, Sequential, Step
from mstar_plan.walks.walk import Walk


def node(name: str, reads: str, writes: str) -> Node:
    return Node(name, tuple(reads.split()), tuple(writes.split()))


def seq(*steps: Step) -> Sequential:
    return Sequential(steps)


def loop(body: Step, times: Any = 3, **options: Any) -> Loop:
    return Loop(body, times, **options)


def walk(step: Any, inputs: str = "x", outputs: str = "y") -> Walk:
    return Walk("w", step, tuple(inputs.split()), tuple(outputs.split()))


F, G = node("f", "x", "y"), node("g", "y", "z")
TURN = node("turn", "z", "z")
MAYBE = Branch("x", {"yes": F, "no": Sequential()})

# name: (what is made, pieces of the message: who, which value, what to do)
MISTAKES: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
    # reads and writes
    "a read that nothing writes": (lambda: walk(node("f", "frames", "y"), "frame"), (
        "node 'f'", "'frames'", "nothing before it writes", "did you mean 'frame'?")),
    "a read before its write": (lambda: walk(seq(G, F), outputs="z"), ("node 'g'", "'y'", "nothing before it")),
    "a read of what only a case writes": (lambda: walk(seq(MAYBE, G), outputs="z"), (
        "node 'g'", "'y'", "some paths only", "write it in every case")),
    "two writers": (lambda: walk(seq(F, node("h", "x", "y"))), (
        "node 'h'", "'y'", "written already", "use another name", "carry it")),
    "two writers of an input": (lambda: walk(node("h", "x", "x"), outputs="x"), ("node 'h'", "'x'", "another name")),
    "two writers on one path": (lambda: walk(seq(MAYBE, node("h", "x", "y"))), ("node 'h'", "'y'", "written already")),
    "an output that nothing writes": (lambda: walk(F, outputs="yy"), ("walk 'w'", "'yy'", "did you mean 'y'?")),
    "an output of one case": (lambda: walk(MAYBE), ("walk 'w'", "'y'", "every path")),
    "an unused input": (lambda: walk(F, "x extra"), ("walk 'w'", "'extra'", "drop it")),
    "an unused output": (lambda: walk(node("f", "x", "y extra")), ("node 'f'", "'extra'", "drop it")),
    "a carry that nobody reads": (lambda: walk(seq(F, loop(node("h", "x", "z"), carry={"z": "y"}))), (
        "node 'h'", "'z'", "nothing reads")),
    "an unread carry in place": (lambda: walk(seq(F, loop(node("h", "x", "z"), carry=("z",))), "x z"), (
        "'z'", "no step reads", "drop it")),
    "an unused collect": (lambda: walk(loop(F, collect={"y": "ys"})), ("loop 'loop'", "'ys'", "drop it")),
    "an unused best": (lambda: walk(loop(F, best=Best("y", {"y": "top"}))), ("loop 'loop'", "'top'", "drop it")),
    # names
    "two nodes of one name": (lambda: walk(seq(F, node("f", "y", "z")), outputs="z"), ("nodes named 'f'", "own name")),
    "two loops of one name": (lambda: walk(seq(loop(F), loop(G)), outputs="z"), ("loops named 'loop'", "own name")),
    "one input twice": (lambda: walk(F, "x x"), ("inputs named 'x'", "own name")),
    "one output twice": (lambda: walk(F, outputs="y y"), ("outputs named 'y'", "own name")),
    "inputs as one string": (lambda: Walk("w", F, "x", ("y",)), ("inputs='x'", "('x',)")),
    "no step": (lambda: walk("f"), ("walk 'w'", "str", "no step")),
    # loops
    "a loop that cannot stop": (lambda: walk(loop(F, None)), ("loop 'loop'", "cannot stop", "give times")),
    "a loop that only until stops": (lambda: walk(loop(node("f", "x", "y"), None, until="y")), ("cannot stop",)),
    "no iterations": (lambda: walk(loop(F, 0)), ("loop 'loop'", "times=0", "at least 1")),
    "a count that is a bool": (lambda: walk(loop(F, True)), ("times=True", "whole number")),
    "a count that is a fraction": (lambda: walk(loop(F, 2.5)), ("times=2.5", "whole number")),
    "a limit of none": (lambda: walk(loop(F, "n", limit=0), "x n"), ("limit=0", "at least 1")),
    "a count over the limit": (lambda: walk(loop(F, 9, limit=8)), ("times=9", "limit=8", "raise it")),
    "a count that nothing writes": (lambda: walk(loop(F, "steps"), "x"), ("loop 'loop'", "count", "'steps'")),
    "a carry without a first value": (lambda: walk(loop(TURN, carry=("z",)), outputs="z"), (
        "loop 'loop'", "'z'", "without a first value")),
    "a carry whose first value is misspelt": (lambda: walk(loop(TURN, carry={"z": "xx"}), outputs="z"), (
        "'z'", "'xx'", "did you mean 'x'?")),
    "a carry that the body never writes": (lambda: walk(loop(F, carry=("x",))), (
        "loop 'loop'", "'x'", "never writes", "drop it from carry")),
    "a carry from outside the loop around": (
        lambda: walk(loop(seq(loop(node("h", "x", "x"), carry=("x",), name="in"), F))),
        ("loop 'in'", "'x'", "stale", "carry={'x_now': 'x'}")),
    "a carry over a value": (lambda: walk(seq(F, loop(node("h", "y", "y"), carry={"y": "x"}))), (
        "'y'", "written already")),
    "one wire as index and carry": (lambda: walk(loop(node("h", "x", "x"), carry=("x",), index="x"), outputs="x"), (
        "loop 'loop'", "'x'")),
    "one wire as index and slice": (lambda: walk(loop(node("f", "i", "y"), index="i", scan={"x": "i"})), (
        "'i'", "two meanings", "one name for each")),
    "an index over a value": (lambda: walk(loop(F, index="x")), ("loop 'loop'", "'x'", "written already")),
    "an index over a carried value": (
        lambda: walk(loop(loop(F, index="z", name="in"), carry=("z",)), "x z"),
        ("loop 'in'", "'z'", "written already")),
    "a body that writes its index": (lambda: walk(loop(node("f", "x", "y i"), index="i")), ("node 'f'", "'i'")),
    "a scan of nothing": (lambda: walk(loop(node("f", "s", "y"), scan={"xs": "s"})), ("(scan)", "'xs'", "'x'?")),
    "until from outside": (lambda: walk(loop(F, until="x")), ("until='x'", "does not write")),
    "until of one case": (lambda: walk(loop(MAYBE, until="y")), ("until='y'", "every path")),
    "a collect from outside": (lambda: walk(loop(F, collect={"x": "xs"}), outputs="xs y"), ("collect='x'", "body")),
    "a best of nothing": (lambda: walk(loop(F, best=Best("cost", {"y": "top"})), outputs="top"), ("best 'cost'",)),
    "a best that keeps nothing": (lambda: walk(loop(F, best=Best("y", {"q": "t"})), outputs="t"), ("best 'q'", "body")),
    "a collect into a wire of the body": (lambda: walk(loop(seq(F, G), collect={"y": "z"}), outputs="z"), (
        "gathers into 'z'", "another name")),
    "a collect into a wire of one case": (
        lambda: walk(loop(seq(F, Branch("x", {"a": seq(G, node("h", "z", "q")), "b": node("k", "x", "q")})),
                          collect={"y": "z"}), outputs="z q"), ("gathers into 'z'", "inside", "another name")),
    "two gathered into one": (lambda: walk(loop(F, collect={"y": "t"}, best=Best("y", {"y": "t"})), outputs="t"), (
        "gathers into 't'", "another name")),
    # branches
    "a choice by nothing": (lambda: walk(Branch("flag", {"true": F})), ("branch on 'flag'", "nothing before it")),
    "no cases": (lambda: walk(Branch("x", {})), ("branch on 'x'", "no case", "at least one")),
    "a case that is no text": (lambda: walk(Branch("x", {True: F})), ("branch on 'x'", "True", "as text", "'true'")),
    # side by side
    "two branches that write one wire": (lambda: walk(Parallel((F, node("h", "x", "y")))), (
        "branches both write 'y'", "own name")),
    "two branches that use one index": (
        lambda: walk(Parallel((loop(node("f", "i", "y"), index="i"), loop(node("g", "x i", "z"), index="i", name="b"))),
                     outputs="y z"), ("branches both write 'i'", "own name")),
    "a race": (lambda: walk(Parallel((F, G)), outputs="z"), (
        "reads 'y'", "neighbour writes", "use a Stream, or a Sequential")),
    "a race over a carried wire": (lambda: walk(seq(F, Parallel((loop(node("h", "y", "y"), carry=("y",)), G))),
                                                outputs="y z"), ("reads 'y'", "neighbour writes")),
    "branches that wait for each other": (lambda: walk(Parallel((node("a", "q", "p"), node("b", "p", "q")))), (
        "cycle", "'q'", "'p'", "one Sequential")),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_names_the_step_the_value_and_the_cure(mistake: str) -> None:
    make, pieces = MISTAKES[mistake]
    with pytest.raises(WalkError) as raised:
        make()
    for piece in pieces:
        assert piece in str(raised.value), f"{piece!r} is not in {str(raised.value)!r}"


def test_the_field_is_the_value_at_fault() -> None:
    with pytest.raises(WalkError) as raised:
        walk(seq(F, node("h", "x", "y")))
    assert raised.value.field == "y"


CORRECT: dict[str, Callable[[], Walk]] = {
    "nothing at all": lambda: walk(seq(), "x", "x"),
    "an input that is returned": lambda: walk(F, "x p", "y p"),
    "what every case writes": lambda: walk(seq(Branch("x", {"a": F, "b": node("h", "x", "y")}), G), outputs="z"),
    "a case that leaves a carry alone": lambda: walk(
        loop(Branch("x", {"a": TURN, "b": seq()}), carry=("z",)), "x z", "z"
    ),
    "two loops one after the other over one wire": lambda: walk(
        seq(loop(TURN, carry=("z",), name="a"), loop(node("h", "z", "z"), carry=("z",), name="b")), "z", "z"
    ),
    "a carry in a loop that is carried around it": lambda: walk(
        loop(loop(TURN, carry=("z",), name="in"), carry=("z",)), "z", "z"
    ),
    "a carry in a loop of what its round has written": lambda: walk(
        loop(seq(node("f", "x", "z"), loop(TURN, carry=("z",), name="in"))), "x", "z"
    ),
    "a fresh start of a carry in every round": lambda: walk(
        loop(loop(node("h", "q", "q"), carry={"q": "x"}, name="in")), "x", "q"
    ),
    "one index in loops that follow each other": lambda: walk(
        seq(loop(node("a", "i", "y"), index="i", name="a"), loop(node("b", "y i", "z"), index="i", name="b")), "", "z"
    ),
    "the best of an inner loop as the next start of the outer one": lambda: walk(
        loop(loop(node("h", "z", "c"), best=Best("c", {"c": "z"}), name="in"), carry=("z",)), "z", "z"
    ),
    "a collect that replaces what the loop around carries": lambda: walk(
        loop(loop(node("h", "z", "c"), collect={"c": Collect("z")}, name="in"), carry=("z",)), "z", "z"
    ),
    "branches that read one value": lambda: walk(Parallel((F, node("h", "x", "z"))), outputs="y z"),
    "no branches": lambda: walk(seq(Parallel(()), F)),
    "a branch that reads what was there before the other looped on it": lambda: walk(
        seq(F, Parallel((loop(node("h", "q", "q"), carry={"q": "y"}), G))), outputs="q z"
    ),
}


@pytest.mark.parametrize("name", CORRECT)
def test_what_is_right_passes_and_runs(name: str) -> None:
    made = CORRECT[name]()
    answers = {n.name: {port: torch.zeros(1) for port, _ in n.outputs} for n in made.nodes}
    components = {name: lambda _, answer=answer: answer for name, answer in answers.items()}
    done = run(components, made, dict.fromkeys(made.inputs, "a"))
    assert done.outputs.keys() == set(made.outputs)
