"""Streams have one producer, one consumer and no cycle; every mistake says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mstar_plan.errors import WalkError
from mstar_plan.walks.check_parallel import streams_into, streams_of
from mstar_plan.walks.step import Branch, Loop, Node, Parallel, Sequential, Step
from mstar_plan.walks.stream import Stream
from mstar_plan.walks.walk import Walk


def make(value: str, name: str = "", reads: tuple[str, ...] = ("x",)) -> Loop:
    """A loop that writes `value` three times."""
    return Loop(Node(f"make_{name or value}", reads, (value,)), 3, name=f"making_{name or value}")


def use(stream: str, into: str, name: str = "", body: Step | None = None, **options: Any) -> Loop:
    """A loop over a stream that adds its chunks to `into`."""
    adding = body or Node(f"use_{name or stream}", (stream, into), (into,))
    return Loop(adding, stream=stream, carry=(into,), name=f"using_{name or stream}", **options)


def walk(branches: tuple[Step, ...], *streams: Stream, outputs: str = "p", inputs: str = "x p") -> Walk:
    return Walk("w", Parallel(branches, streams), tuple(inputs.split()), tuple(outputs.split()))


AS = Stream("a", "as")
BOTH = Sequential((make("a"), use("as", "p")))
NESTED = Parallel((make("b"), use("s", "p")), (Stream("b", "s"),))

MISTAKES: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
    "no producer": (lambda: walk((make("b"), use("as", "p")), AS, outputs="p b"), (
        "stream of 'a'", "0 producing", "exactly one must write it")),
    "two producers": (lambda: walk((make("a", "one"), make("a", "two"), use("as", "p")), AS), (
        "stream of 'a'", "2 producing", "exactly one must write it")),
    "no consumer": (lambda: walk((make("a"), Node("f", ("x", "p"), ("q",))), AS, outputs="q"), (
        "stream into 'as'", "0 consuming", "one Loop needs stream='as'")),
    "two consumers": (lambda: walk((make("a"), use("as", "p"), use("as", "q", "two")), AS, inputs="x p q",
                                   outputs="p q"), ("stream into 'as'", "2 consuming")),
    "producer and consumer in one branch": (lambda: walk((BOTH, Sequential()), AS), (
        "stream of 'a'", "one branch", "must be two")),
    "a loop over no stream": (lambda: walk((make("a"), use("bs", "p"))), (
        "loop 'using_bs'", "stream 'bs'", "no Stream")),
    "a loop over a stream beside it": (
        lambda: walk((Sequential((Parallel((make("a"), use("as", "p")), (AS,)), use("as", "q", "late"))),),
                     inputs="x p q", outputs="p q"), ("loop 'using_late'", "stream 'as'", "no Stream")),
    "a stream over a value": (lambda: walk((make("a"), use("x", "p")), Stream("a", "x")), (
        "stream into 'x'", "hides", "another")),
    "two streams into one": (lambda: walk((make("a"), make("b"), use("as", "p")), AS, Stream("b", "as")), (
        "two streams", "'as'", "each a name")),
    "one stream twice": (lambda: walk((make("a"), use("as", "p")), AS, AS), ("two streams", "'as'")),
    "an inner stream of the outer one's name": (lambda: walk((make("a"), NESTED), Stream("a", "s")), (
        "two streams", "'s'", "each a name")),
    "a stream named like its value": (lambda: walk((make("a"), use("a", "p")), Stream("a", "a")), (
        "'a'", "each its own")),
    "a count named like its stream": (lambda: walk((make("a"), use("as", "p")), Stream("a", "as", new="as")), (
        "new='as'", "each its own")),
    "a reader of the streamed value": (
        lambda: walk((make("a"), use("as", "p", body=Node("f", ("as", "a", "p"), ("p",)))), AS),
        ("reads 'a'", "neighbour writes", "use a Stream")),
    "a cycle of two": (
        lambda: walk((Sequential((use("bs", "p"), make("a"))), Sequential((use("as", "q"), make("b")))),
                     AS, Stream("b", "bs"), inputs="x p q", outputs="p q"),
        ("streams form a cycle", "'a' -> 'as'", "'b' -> 'bs'", "cut one")),
    "a cycle of three": (
        lambda: walk(tuple(Sequential((use(f"{i}s", f"p{i}"), make(f"m{i}"))) for i in range(3)),
                     *(Stream(f"m{i}", f"{(i + 1) % 3}s") for i in range(3)), inputs="x p0 p1 p2", outputs="p0 p1 p2"),
        ("streams form a cycle", "'m0' -> '1s'", "cut one")),
    "times beside a stream": (lambda: walk((make("a"), use("as", "p", times=3)), AS), (
        "loop 'using_as'", "times=3", "stream='as'", "stream alone gives the count")),
    "a limit beside a stream": (lambda: walk((make("a"), use("as", "p", limit=3)), AS), ("limit=3", "stream='as'")),
    "a scan beside a stream": (lambda: walk((make("a"), use("as", "p", scan={"x": "i"})), AS), ("scan={'x': 'i'}",)),
    "a value of a loop that may not run": (
        lambda: Walk("w", Sequential((
            Parallel((make("a"), use("as", "p", body=Node("f", ("as", "p"), ("p", "q")))), (AS,)),
            Node("late", ("q", "p"), ("y",)))), ("x", "p"), ("y",)),
        ("node 'late'", "'q'", "some paths only", "a stream, which may be empty")),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_names_the_stream_and_the_cure(mistake: str) -> None:
    build, pieces = MISTAKES[mistake]
    with pytest.raises(WalkError) as raised:
        build()
    for piece in pieces:
        assert piece in str(raised.value), f"{piece!r} is not in {str(raised.value)!r}"


def test_what_is_right_passes() -> None:
    walk((make("a"), use("as", "p")), AS)
    walk((use("as", "p"), make("a")), AS)  # the order of writing is free
    walk((make("a"), use("as", "p"), use("again", "q")), AS, Stream("a", "again"), inputs="x p q", outputs="p q")
    walk((make("a"), Branch("x", {"a": use("as", "p"), "b": Sequential()})), AS)
    walk((make("a"), Sequential((NESTED, use("as", "q")))), AS, inputs="x p q", outputs="p q")
    chain = Loop(Node("pass", ("as",), ("b",)), stream="as", name="passing")
    walk((make("a"), chain, use("bs", "p")), AS, Stream("b", "bs"))
    inner = Parallel((use("as", "p"), Node("f", ("x",), ("y",))))
    walk((make("a"), inner), AS, outputs="p y")


def test_the_ends_of_a_stream_are_found_inside_other_steps() -> None:
    producer = Sequential((Branch("x", {"a": make("a"), "b": Sequential()}),))
    consumer = Loop(Parallel((use("as", "p"),)), 2)
    parallel = Parallel((producer, consumer), (AS,))
    assert streams_of(parallel, producer) == [AS] == streams_into(parallel, consumer)
    assert streams_of(parallel, consumer) == [] == streams_into(parallel, producer)
