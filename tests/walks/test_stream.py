"""Streams are cut as their policy says, whatever the order of pushes and pops, and used items are let go."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mstar_plan.errors import ComponentError, WalkError
from mstar_plan.walks.stream import ChunkPolicy, FixedChunks, LeftContext, SlidingWindow, Stream, StreamBuffer


def item(n: int) -> torch.Tensor:
    return torch.tensor([[n, -n]])


def drain(policy: ChunkPolicy, count: int, *, every: int = 1) -> list[tuple[list[int], int]]:
    """(items, new) of all chunks, where the consumer looks after every `every` items."""
    buffer, chunks = StreamBuffer(Stream("v", "vs", policy)), []

    def take() -> None:
        while buffer.has_chunk():
            items, new = buffer.pop()
            chunks.append((items[0, :, 0].tolist(), new))

    for n in range(count):
        buffer.push(item(n))
        if n % every == every - 1:
            take()
    buffer.closed = True
    take()
    return chunks


@pytest.mark.parametrize(
    ("policy", "count", "chunks"),
    [
        (FixedChunks(), 2, [([0], 1), ([1], 1)]),
        (FixedChunks(2), 5, [([0, 1], 2), ([2, 3], 2), ([4], 1)]),
        (FixedChunks(4), 4, [([0, 1, 2, 3], 4)]),
        (FixedChunks(4), 0, []),
        (SlidingWindow(3, 1), 5, [([0, 1, 2], 3), ([1, 2, 3], 1), ([2, 3, 4], 1)]),
        (SlidingWindow(4, 2), 7, [([0, 1, 2, 3], 4), ([2, 3, 4, 5], 2), ([4, 5, 6], 1)]),
        (SlidingWindow(4, 2), 3, [([0, 1, 2], 3)]),
        (SlidingWindow(2, 2), 3, [([0, 1], 2), ([2], 1)]),
        (LeftContext(2, 1), 5, [([0, 1], 2), ([1, 2, 3], 2), ([3, 4], 1)]),
        (LeftContext(1, 3), 4, [([0], 1), ([0, 1], 1), ([0, 1, 2], 1), ([0, 1, 2, 3], 1)]),
        (LeftContext(2, 0), 3, [([0, 1], 2), ([2], 1)]),
        (LeftContext(1, 2), 0, []),
    ],
)
def test_chunks_by_hand(policy: ChunkPolicy, count: int, chunks: list[tuple[list[int], int]]) -> None:
    assert drain(policy, count) == chunks


POLICIES = st.one_of(
    st.builds(FixedChunks, st.integers(1, 5)),
    st.tuples(st.integers(1, 5), st.integers(1, 5)).map(lambda ws: SlidingWindow(max(ws), min(ws))),
    st.builds(LeftContext, st.integers(1, 5), st.integers(0, 5)),
)


@given(policy=POLICIES, count=st.integers(0, 30), every=st.integers(1, 40))
def test_every_item_is_new_exactly_once_whenever_the_consumer_looks(
    policy: ChunkPolicy, count: int, every: int
) -> None:
    chunks = drain(policy, count, every=every)
    assert [n for items, new in chunks for n in items[len(items) - new :]] == list(range(count))
    assert all(items == list(range(items[0], items[-1] + 1)) for items, _ in chunks)
    assert chunks == drain(policy, count)


def test_a_chunk_stacks_along_axis_one() -> None:
    buffer = StreamBuffer(Stream("v", "vs", FixedChunks(3)))
    for n in range(3):
        buffer.push(torch.full((2, 5), n))
    chunk, new = buffer.pop()
    assert chunk.shape == (2, 3, 5)
    assert new == 3


def test_statics_come_in_a_tuple() -> None:
    buffer = StreamBuffer(Stream("v", "vs", FixedChunks(2)))
    buffer.push("hello")
    buffer.push("world")
    assert buffer.pop() == (("hello", "world"), 2)


@pytest.mark.parametrize("policy", [FixedChunks(2), SlidingWindow(4, 2), LeftContext(2, 3)])
def test_memory_is_bounded_by_what_a_chunk_can_want(policy: ChunkPolicy) -> None:
    buffer, alive = StreamBuffer(Stream("v", "vs", policy)), []
    for n in range(200):
        one = item(n)
        alive.append(weakref.ref(one))
        buffer.push(one)
        del one
        if buffer.has_chunk():
            buffer.pop()
    assert sum(ref() is not None for ref in alive) <= 5


def test_a_cleared_buffer_holds_nothing() -> None:
    buffer, one = StreamBuffer(Stream("v", "vs", FixedChunks(9))), item(1)
    ref = weakref.ref(one)
    buffer.push(one)
    del one
    buffer.clear()
    assert ref() is None


@pytest.mark.parametrize(
    ("items", "pieces"),
    [
        ((torch.zeros(1, 2), torch.zeros(1, 3)), ("stream of 'v'", "(1, 2)", "(1, 3)", "equal shapes")),
        ((torch.zeros(1, 2), "text"), ("stream of 'v'", "Tensor", "tensors alone, or statics alone")),
    ],
)
def test_items_that_do_not_go_together(items: tuple[Any, ...], pieces: tuple[str, ...]) -> None:
    buffer = StreamBuffer(Stream("v", "vs", FixedChunks(2)))
    for one in items:
        buffer.push(one)
    with pytest.raises(ComponentError) as raised:
        buffer.pop()
    assert all(piece in str(raised.value) for piece in pieces)


class Stuck:
    def __init__(self, *cut: int) -> None:
        self.cut = cut

    def next_chunk(self, emitted: int, available: int, closed: bool) -> tuple[int, int, int] | None:
        return (self.cut[0], self.cut[1], self.cut[2]) if available < 1000 else None


@pytest.mark.parametrize("cut", [(0, 0, 0), (0, 9, 9), (1, 2, 1), (0, 2, 1), (-1, 1, 1)])
def test_a_policy_that_stands_still_or_skips_is_caught(cut: tuple[int, int, int]) -> None:
    buffer = StreamBuffer(Stream("v", "vs", Stuck(*cut)))
    for n in range(3):
        buffer.push(item(n))
    with pytest.raises(WalkError, match=r"stream of 'v'.*cut .* where 0 of 3 items") as raised:
        buffer.pop()
    assert raised.value.field == "v"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FixedChunks(0), r"FixedChunks.size is 0; .* at least 1"),
        (lambda: FixedChunks(2.5), r"FixedChunks.size is 2.5"),  # type: ignore[arg-type]
        (lambda: SlidingWindow(0, 1), r"SlidingWindow.window is 0"),
        (lambda: SlidingWindow(2, 3), r"stride 3 is over its window 2: items would be skipped"),
        (lambda: LeftContext(0, 1), r"LeftContext.size is 0"),
        (lambda: LeftContext(1, -1), r"LeftContext.left is -1; .* at least 0"),
        (lambda: Stream("a", "a"), r"stream of 'a' into 'a' .* give each its own"),
    ],
)
def test_sizes_are_checked(make: Any, message: str) -> None:
    with pytest.raises(WalkError, match=message):
        make()
