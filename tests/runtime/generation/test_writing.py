"""Writing: what a request holds is given back once, between steps, whoever lets go of it."""

from __future__ import annotations

from tiny_llama import writer

from mstar_plan.runtime.generation.text import TextOptions, TextUsage
from mstar_plan.walks.batch import Batch


def test_it_counts_what_is_left_to_read() -> None:
    made = writer()
    writing = made.open(list(range(2, 42)), TextOptions(max_tokens=4, temperature=0))
    assert (writing.reading, writing.usage) == (40, TextUsage(40, 0, 0))
    made(Batch({"writing": writing}, 1))
    assert (writing.reading, writing.usage.completion_tokens) == (0, 1)
    writing.release()
    again = made.open(list(range(2, 42)), TextOptions(max_tokens=4))
    assert (again.reading, again.cached) == (8, 32)
    again.release()


def test_release_waits_for_the_step_that_is_at_it() -> None:
    made = writer()
    writing = made.open([5, 6, 7], TextOptions(max_tokens=4, n=3))
    held = made.pool.held
    with made.pool.step():
        writing.release()
        writing.fork()  # the step goes on with what it has begun
        assert writing.released
        assert made.pool.held >= held
    assert made.pool.held == 0
    writing.release()
    assert made.pool.held == 0


def test_each_answer_goes_its_own_way() -> None:
    made = writer()
    writing = made.open(list(range(2, 22)), TextOptions(max_tokens=30, temperature=2.0, seed=1, n=3))
    while not made(Batch({"writing": writing}, 1))["done"]:
        pass
    texts = {tuple(answer.counts.elements()) for answer in writing.answers}
    assert len(texts) == 3
    assert all(answer.finish is not None for answer in writing.answers)
    assert made.pool.held == 0
