"""Prefix caches: joining prefixes of different lengths, sharing memory, and the joined cache that is kept."""

from __future__ import annotations

import gc
import weakref

import torch

from mstar_plan.models.vla.prefix_cache import PrefixCache
from mstar_plan.walks.batch import Batch
from mstar_plan.walks.component import Joinable

ROOM, LAYERS, GROUPS, WIDTH = 2, 3, 1, 4


def make(rows: int, length: int, seed: int = 0, seen: torch.Tensor | None = None) -> PrefixCache:
    made = torch.Generator().manual_seed(seed)
    kv = torch.randn(2 * LAYERS, rows, GROUPS, length + ROOM, WIDTH, generator=made)
    if seen is not None:
        seen = torch.cat([seen, torch.ones(rows, ROOM, dtype=torch.bool)], 1)
    return PrefixCache(kv, seen, torch.randn(2, rows, ROOM, WIDTH // 2, generator=made), ROOM)


def held(cache: PrefixCache, row: int) -> torch.Tensor:
    """The keys and values of one row's prefix that are there."""
    prefix = cache.kv_LBGKW[:, row, :, : cache.length]
    return prefix if cache.seen_BK is None else prefix[:, :, cache.seen_BK[row, : cache.length]]


def test_it_is_a_joinable_and_equal_lengths_need_no_mask() -> None:
    parts = [make(1, 5, 0), make(2, 5, 1)]
    assert isinstance(parts[0], Joinable)
    joined = PrefixCache.join(parts)
    assert (joined.rows, joined.length, joined.seen_BK) == (3, 5, None)
    assert torch.equal(held(joined, 0), held(parts[0], 0))
    assert torch.equal(held(joined, 2), held(parts[1], 1))
    assert torch.equal(joined.turns_2BSW[:, 1:], parts[1].turns_2BSW)


def test_shorter_prefixes_are_padded_and_masked() -> None:
    some = torch.tensor([[True, True, False]])
    parts = [make(1, 5, 0), make(1, 3, 1, some), make(1, 2, 2)]
    joined = PrefixCache.join(parts)
    assert joined.seen_BK is not None
    assert joined.seen_BK.tolist() == [[True] * 7, [True, True, False, False, False, True, True],
                                       [True, True, False, False, False, True, True]]  # fmt: skip
    for row, part in enumerate(parts):
        assert torch.equal(held(joined, row), held(part, 0))
    assert torch.equal(joined.mask[:, 0, 0], joined.seen_BK)
    for row, part in enumerate(joined.split([1, 1, 1])):
        assert torch.equal(held(part, 0), held(parts[row], 0))
        assert torch.equal(part.turns_2BSW, parts[row].turns_2BSW)


def test_lengths_join_but_other_models_and_dtypes_do_not() -> None:
    assert make(1, 5).join_key() == make(3, 9).join_key()
    half = make(1, 5)
    half = PrefixCache(half.kv_LBGKW.half(), None, half.turns_2BSW, ROOM)
    assert half.join_key() != make(1, 5).join_key()
    kv = make(1, 5).kv_LBGKW
    assert PrefixCache(kv, None, make(1, 5).turns_2BSW, ROOM + 1).join_key() != make(1, 5).join_key()
    assert Batch({"prefix": make(1, 5)}, 1).join_key() == Batch({"prefix": make(2, 3)}, 2).join_key()


def test_the_same_parts_give_the_same_joined_cache() -> None:
    parts = [make(1, 5, 0), make(1, 4, 1), make(1, 5, 2)]
    joined = PrefixCache.join(parts)
    assert PrefixCache.join(list(parts)) is joined
    assert PrefixCache.join(parts[:2]) is not joined
    assert PrefixCache.join([parts[0], parts[2], parts[1]]) is not joined
    gone = weakref.ref(PrefixCache.join(parts))
    del joined, parts
    gc.collect()
    assert gone() is None  # a joined cache lives no longer than the requests in it


def test_a_part_that_is_gone_is_not_mistaken_for_its_successor() -> None:
    first = make(1, 5, 0)
    joined = PrefixCache.join([first, make(1, 5, 1)])
    again = PrefixCache.join([first, make(1, 5, 2)])
    assert again is not joined
    assert not torch.equal(held(again, 1), held(joined, 1))


def test_rows_of_one_call_share_its_memory() -> None:
    whole = make(4, 5)
    parts = whole.split([1, 2, 1])
    assert all(part.kv_LBGKW.data_ptr() >= whole.kv_LBGKW.data_ptr() for part in parts)
    assert PrefixCache.join(parts) is whole
    middle = PrefixCache.join(parts[:2])
    assert middle.rows == 3
    assert middle.kv_LBGKW.data_ptr() == whole.kv_LBGKW.data_ptr()
    turned = PrefixCache.join([parts[1], parts[0]])
    assert torch.equal(turned.kv_LBGKW[:, :, :, :5], whole.kv_LBGKW[:, [1, 2, 0], :, :5])
    inner = PrefixCache.join(parts[1].split([1, 1]))
    assert inner.kv_LBGKW.data_ptr() == parts[1].kv_LBGKW.data_ptr()


def test_it_counts_its_bytes_and_moves() -> None:
    cache = make(2, 5)
    assert cache.nbytes == 2 * LAYERS * 2 * 7 * WIDTH * 4
    moved = cache.to(torch.device("cpu"))
    assert torch.equal(moved.kv_LBGKW, cache.kv_LBGKW)
