"""Sequences: who owns which page, forks that copy only what they write to, and release at the end."""

from __future__ import annotations

import gc
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mstar_plan.errors import LimitExceededError, OverloadedError
from mstar_plan.runtime.generation.kv_pool import PAGE, KVPool, KVShape
from mstar_plan.runtime.generation.sequence import Sequence, pages_for


def pool(pages: int = 16) -> KVPool:
    return KVPool(KVShape(1, 1, 1), pages * PAGE)


def write(sequence: Sequence, tokens: list[int]) -> None:
    """Keys become the tokens themselves."""
    sequence.reserve(len(tokens))
    places = sequence.slots()[len(sequence) : len(sequence) + len(tokens)]
    sequence.pool.store[:, :, torch.from_numpy(places)] = torch.tensor(tokens, dtype=torch.float32)[
        None, None, :, None, None
    ]
    sequence.extend(tokens)


def own(sequence: Sequence) -> list[int]:
    """Pages that it may write to without copying them first."""
    first = len(sequence) // PAGE
    partly = (
        first if len(sequence) % PAGE and not sequence.pool.shared(sequence._pages[first]) else pages_for(len(sequence))
    )
    return [*sequence._pages[partly:], *sequence._spare]


def read(sequence: Sequence) -> list[int]:
    places = torch.from_numpy(sequence.slots()[: len(sequence)])
    return [int(x) for x in sequence.pool.store[0, 0, places, 0, 0].tolist()]


def test_pages_for() -> None:
    assert [pages_for(n) for n in (0, 1, PAGE, PAGE + 1)] == [0, 1, 1, 2]


def test_it_grows_and_is_released_once() -> None:
    made = pool()
    sequence = Sequence.open(made, [1], 40)
    write(sequence, list(range(40)))
    assert read(sequence) == list(range(40))
    assert sequence.room == 3 * PAGE
    assert sequence.contiguous(40) is not None
    sequence.release()
    sequence.release()
    assert made.held == 0


def test_forgetting_it_releases_it() -> None:
    made = pool()
    sequence = Sequence.open(made, [1], 40)
    assert made.held == 3
    del sequence
    gc.collect()
    assert made.held == 0


def test_an_equal_prompt_starts_where_the_pages_are_known() -> None:
    made, prompt = pool(), list(range(40))
    first = Sequence.open(made, prompt, 50)
    write(first, prompt)
    second = Sequence.open(made, prompt, 50)
    assert len(second) == 2 * PAGE
    assert read(second) == prompt[: 2 * PAGE]
    assert made.held == pages_for(50) + pages_for(50) - 2
    write(second, prompt[2 * PAGE :])
    assert read(second) == prompt


def test_forks_share_and_copy_only_what_they_write_to() -> None:
    made = pool()
    first = Sequence.open(made, [1], 60, spare=2 * 4 + 1)
    write(first, list(range(20)))
    forks = [first.fork(60) for _ in range(2)]
    write(forks[0], [100, 101])
    write(first, [200])
    write(forks[1], [300, 301, 302])
    assert read(first) == [*range(20), 200]
    assert read(forks[0]) == [*range(20), 100, 101]
    assert read(forks[1]) == [*range(20), 300, 301, 302]
    for each in (first, *forks):
        each.release()
    assert made.held == 0


def test_no_room_holds_nothing() -> None:
    made, prompt = pool(5), list(range(40))
    first = Sequence.open(made, prompt, 40)
    write(first, prompt)
    first.release()
    held = made.take(1)
    with pytest.raises(OverloadedError):
        Sequence.open(made, prompt, 4 * PAGE, spare=1)
    assert made.held == 1
    made.give_back(held)
    with pytest.raises(LimitExceededError):
        Sequence.open(made, prompt, 5 * PAGE, spare=1)
    assert made.held == 0


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000))
def test_whatever_comes_every_sequence_keeps_its_own(seed: int) -> None:
    rng, made = random.Random(seed), pool(24)
    living: list[tuple[Sequence, list[int]]] = []
    for _ in range(60):
        kind = rng.random()
        if kind < 0.3:
            prompt = [rng.randint(0, 1) for _ in range(rng.randint(1, 50))]
            try:
                sequence = Sequence.open(made, prompt, len(prompt) + 30, spare=12)
            except OverloadedError:
                continue
            write(sequence, prompt[len(sequence) :])
            living.append((sequence, list(prompt)))
        elif living and kind < 0.7:
            sequence, want = rng.choice(living)
            count = min(rng.randint(1, 9), sequence.room - len(sequence))
            if count and sequence._spare:
                new = [rng.randint(2, 99) for _ in range(count)]
                write(sequence, new)
                want += new
        elif living and kind < 0.85:
            sequence, want = rng.choice(living)
            if len(sequence._spare) >= pages_for(len(sequence) + 5) - pages_for(len(sequence)) + 2:
                living.append((sequence.fork(len(sequence) + 5), list(want)))
        elif living:
            sequence, _ = living.pop(rng.randrange(len(living)))
            sequence.release()
        for sequence, want in living:
            assert read(sequence) == want
        written = [page for sequence, want in living for page in own(sequence)]
        assert len(written) == len(set(written))  # no page has two writers
    for sequence, _ in living:
        sequence.release()
    assert made.held == 0
