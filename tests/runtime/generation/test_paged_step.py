"""Attention over pages equals plain attention in float64, whoever shares a page and wherever it lies."""

from __future__ import annotations

from collections.abc import Sequence as Rows

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mstar_plan.runtime.generation.kv_pool import PAGE, KVPool, KVShape
from mstar_plan.runtime.generation.paged_step import GatheredStep, PagedStep, SlicedStep
from mstar_plan.runtime.generation.sequence import Sequence

LAYERS, HEADS, GROUPS, WIDTH = 2, 6, 2, 8
Way = type[PagedStep]
WAYS = pytest.mark.parametrize("way", [SlicedStep, GatheredStep])


class Past:
    """All that a sequence was told, by layer, beside the sequence itself."""

    def __init__(self, sequence: Sequence, tokens: Rows[Tensor] = ()) -> None:
        self.sequence, self.seen = sequence, list(tokens)  # of each token [L, 2, G, D]

    def fork(self, length: int) -> Past:
        return Past(self.sequence.fork(length), self.seen)


def pool(pages: int = 24) -> KVPool:
    made = KVPool(KVShape(LAYERS, GROUPS, WIDTH), pages * PAGE)
    made.store.fill_(float("nan"))  # what was never written must not be read
    return made


def scattered(pages: int = 24) -> KVPool:
    """Every other page is held by somebody else."""
    made = pool(pages)
    held = made.take(pages)
    made.give_back(held[::2])
    return made


def plain(q_HD: Tensor, seen: Rows[Tensor], layer: int) -> Tensor:
    """[H * D]: what one token attends to, one head after the other."""
    keys, values = torch.stack([each[layer] for each in seen]).double().unbind(1)  # [T, G, D]
    out = []
    for head, q_D in enumerate(q_HD.double()):
        group = head * GROUPS // HEADS
        weights = (keys[:, group] @ q_D / WIDTH**0.5).softmax(0)
        out.append(weights @ values[:, group])
    return torch.cat(out).float()


def step(way: Way, rows: Rows[tuple[Past, int]], seed: int) -> None:
    """New tokens of several sequences at once; each must see exactly its own past."""
    noise = torch.Generator().manual_seed(seed)
    made, total = rows[0][0].sequence.pool, sum(count for _, count in rows)
    for past, count in rows:
        past.sequence.reserve(count)
    cache = way(made, [(past.sequence, count) for past, count in rows])
    assert cache.positions.tolist() == [len(past.seen) + i for past, count in rows for i in range(count)]
    new = torch.randn(total, LAYERS, 2, GROUPS, WIDTH, generator=noise)
    queries = torch.randn(LAYERS, total, HEADS, WIDTH, generator=noise)
    got = [cache.attend(layer, queries[layer], new[:, layer, 0], new[:, layer, 1]) for layer in range(LAYERS)]
    at = 0
    for past, count in rows:
        for _ in range(count):
            past.seen.append(new[at])
            for layer in range(LAYERS):
                want = plain(queries[layer, at], past.seen, layer)
                torch.testing.assert_close(got[layer][at], want, atol=1e-5, rtol=1e-4)
            at += 1
        past.sequence.extend([int(each.abs().sum() * 1e4) for each in past.seen[-count:]])


def opened(made: KVPool, length: int, first: int, spare: int = 0) -> Past:
    return Past(Sequence.open(made, [first], length, spare))


@WAYS
@pytest.mark.parametrize("room", [pool, scattered])
def test_ragged_rows_in_chunks_and_steps(way: Way, room) -> None:
    made = room()
    rows = [opened(made, length, number) for number, length in enumerate((70, 20, 40))]
    for turn, counts in enumerate([(33, 1, 16), (1, 1, 1), (7, 15, 2), (1, 1, 1)]):
        step(way, list(zip(rows, counts, strict=True)), turn)
    step(way, [(rows[0], 1)], 9)
    step(way, [(rows[2], 5), (rows[0], 1)], 10)


@WAYS
@pytest.mark.parametrize("written", [PAGE, PAGE + 5, 3])
def test_forks_do_not_see_each_other(way: Way, written: int) -> None:
    made = pool()
    first = opened(made, 60, 1, spare=9)
    step(way, [(first, written)], 0)
    forks = [first, first.fork(60), first.fork(60)]
    for turn, counts in enumerate([(1, 1, 1), (20, 3, 1), (1, 1, 1)]):
        step(way, list(zip(forks, counts, strict=True)), 1 + turn)
    for past in forks:
        past.sequence.release()
    assert made.held == 0


@WAYS
def test_a_known_prompt_is_seen_where_it_lies(way: Way) -> None:
    made = pool()
    first = opened(made, 50, 1)
    step(way, [(first, 40)], 0)
    tokens = first.sequence.tokens[: 2 * PAGE]
    second = Past(Sequence.open(made, [*tokens, 5, 6], 50), first.seen[: 2 * PAGE])
    assert len(second.sequence) == 2 * PAGE
    assert second.sequence.contiguous(2 * PAGE + 1) is None
    step(way, [(second, 3), (first, 1)], 1)
    step(way, [(second, 1)], 2)


@settings(deadline=None, max_examples=25)
@given(
    way=st.sampled_from([SlicedStep, GatheredStep]),
    turns=st.lists(st.lists(st.integers(0, 20), min_size=3, max_size=3), min_size=1, max_size=4),
    spread=st.booleans(),
)
def test_any_rows_at_any_time(way: Way, turns: list[list[int]], spread: bool) -> None:
    made = scattered(32) if spread else pool(32)
    rows = [opened(made, 80, number) for number in range(3)]
    for turn, counts in enumerate(turns):
        due = [(past, count) for past, count in zip(rows, counts, strict=True) if count]
        if due:
            step(way, due, turn)
