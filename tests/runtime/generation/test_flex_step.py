"""FlexAttention over the pool equals attention of each sequence by itself, whatever pages it lies in."""

from __future__ import annotations

import pytest
import torch

from mstar_plan.runtime.generation.flex_step import FlexStep
from mstar_plan.runtime.generation.kv_pool import KVPool, KVShape
from mstar_plan.runtime.generation.paged_step import SlicedStep
from mstar_plan.runtime.generation.sequence import Sequence

SHAPE = KVShape(layers=1, heads=2, width=16)


def draw(count: int, heads: int, seed: int) -> torch.Tensor:
    return torch.randn(count, heads, 16, generator=torch.Generator().manual_seed(seed))


@pytest.mark.filterwarnings("ignore")  # the library advises to compile it, which is for GPUs
def test_it_equals_the_way_for_cpus():
    outs = {}
    for kind in (SlicedStep, FlexStep):
        pool = KVPool(SHAPE, 16 * 16)
        pool.store.zero_()
        first = Sequence.open(pool, [1], 40, spare=4)
        second = Sequence.open(pool, [2], 70)
        out = []
        for turn, counts in enumerate([(20, 33), (1, 1), (5, 16)]):
            rows = list(zip((first, second), counts, strict=True))
            for sequence, count in rows:
                sequence.reserve(count)
            total = sum(counts)
            step = kind(pool, rows)
            out.append(step.attend(0, draw(total, 4, turn), draw(total, 2, 10 + turn), draw(total, 2, 20 + turn)))
            for sequence, count in rows:
                sequence.extend(range(100 * turn, 100 * turn + count))
        fork = first.fork(40)  # shares pages, and copies the one that it writes to
        fork.reserve(1)
        out.append(kind(pool, [(fork, 1)]).attend(0, draw(1, 4, 7), draw(1, 2, 8), draw(1, 2, 9)))
        outs[kind] = torch.cat(out)
    torch.testing.assert_close(outs[FlexStep], outs[SlicedStep], atol=1e-5, rtol=1e-5)


@pytest.mark.filterwarnings("ignore")
def test_values_that_are_not_finite_stay_with_their_own_row():
    pool = KVPool(SHAPE, 4 * 16)
    pool.store.zero_()
    broken, sound = Sequence.open(pool, [1], 16), Sequence.open(pool, [2], 16)
    rows = [(broken, 2), (sound, 2)]
    for sequence, count in rows:
        sequence.reserve(count)
    q, k, v = draw(4, 4, 1), draw(4, 2, 2), draw(4, 2, 3)
    want = SlicedStep(pool, rows).attend(0, q, k, v)[2:]
    k[:2], v[:2] = float("nan"), float("inf")
    got = FlexStep(pool, rows).attend(0, q, k, v)[2:]
    torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)
    broken.release()
    again = Sequence.open(pool, [3], 16)  # in the page of the broken one
    again.reserve(1)
    one = [draw(1, 4, 4), draw(1, 2, 5), draw(1, 2, 6)]
    want = SlicedStep(pool, [(again, 1)]).attend(0, *one)
    torch.testing.assert_close(FlexStep(pool, [(again, 1)]).attend(0, *one), want, atol=1e-5, rtol=1e-5)
