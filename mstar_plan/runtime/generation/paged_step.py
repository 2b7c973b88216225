"""One forward pass over paged sequences: where new keys and values go, and who attends to what.

On a CPU each sequence attends by itself, with the fused kernel, over a slice of the pool where its pages lie side by
side. Elsewhere all sequences attend in one call over keys gathered to equal lengths; `flex_step.py` reads pages where
they lie. Another kernel would stand behind the same `attend`.
"""

from __future__ import annotations

from collections.abc import Sequence as Rows

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from mstar_plan.runtime.generation.kv_pool import KVPool
from mstar_plan.runtime.generation.sequence import Sequence


class PagedStep:
    """What a model sees of its rows' past; see `walks.cache.SequenceCache`.

    Args:
        pool: Where keys and values are.
        rows: (sequence, number of new tokens), each sequence once; places for the new ones are its own already.
    """

    def __init__(self, pool: KVPool, rows: Rows[tuple[Sequence, int]]) -> None:
        self._pool, self._device = pool, pool.store.device
        self._counts = [count for _, count in rows]
        new = [sequence.slots()[len(sequence) : len(sequence) + count] for sequence, count in rows]
        starts = [np.arange(len(sequence), len(sequence) + count) for sequence, count in rows]
        self.positions = torch.from_numpy(np.concatenate(starts)).to(self._device)
        self._slots = torch.from_numpy(np.concatenate(new)).to(self._device)
        self._alone = len(rows) == 1

    def _write(self, layer: int, k_MGD: Tensor, v_MGD: Tensor) -> None:
        keys, values = self._pool.store[layer]
        keys.index_copy_(0, self._slots, k_MGD)
        values.index_copy_(0, self._slots, v_MGD)

    def attend(self, layer: int, q_MHD: Tensor, k_MGD: Tensor, v_MGD: Tensor) -> Tensor:
        """See `SequenceCache`."""
        raise NotImplementedError


class SlicedStep(PagedStep):
    """Each sequence by itself: the way for CPUs, where a call costs microseconds, and copying the past does not pay."""

    def __init__(self, pool: KVPool, rows: Rows[tuple[Sequence, int]]) -> None:
        super().__init__(pool, rows)
        self._pasts = [_Past(pool, sequence, count) for sequence, count in rows]

    def attend(self, layer: int, q_MHD: Tensor, k_MGD: Tensor, v_MGD: Tensor) -> Tensor:
        """See `SequenceCache`."""
        self._write(layer, k_MGD, v_MGD)
        if self._alone:
            return self._pasts[0].attend(layer, q_MHD)
        queries = torch.split(q_MHD, self._counts)
        return torch.cat([past.attend(layer, q) for past, q in zip(self._pasts, queries, strict=True)])


class _Past:
    """One sequence's keys and values, new ones included, by layer: views [1, G, T, D], or where to gather them."""

    def __init__(self, pool: KVPool, sequence: Sequence, count: int) -> None:
        total, heads = len(sequence) + count, pool.shape.heads
        self._count, self._heads, self._store = count, heads, pool.store
        self._mask: Tensor | None = None
        start = sequence.contiguous(total)
        self._where: Tensor | None = None
        if start is None:
            self._where = torch.from_numpy(sequence.slots()[:total]).to(pool.store.device)
        else:
            both = pool.store[:, :, start : start + total].transpose(2, 3).unsqueeze(2)
            self._keys, self._values = both[:, 0].unbind(0), both[:, 1].unbind(0)

    def attend(self, layer: int, q_MHD: Tensor) -> Tensor:
        """[n, H, D] to [n, H * D]. The queries of a group stand behind one another: no key is copied for them."""
        n, heads, width = q_MHD.shape
        group = heads // self._heads
        if self._where is None:
            keys, values = self._keys[layer], self._values[layer]
        else:
            both = self._store[layer].index_select(1, self._where).transpose(1, 2).unsqueeze(1)
            keys, values = both[0], both[1]
        if n == 1:
            folded = q_MHD.view(1, self._heads, group, width)
            return functional.scaled_dot_product_attention(folded, keys, values).view(1, heads * width)
        folded = q_MHD.view(n, self._heads, group, width).transpose(0, 1).reshape(1, self._heads, n * group, width)
        if self._mask is None:
            self._mask = _causal(keys.shape[2], n, keys.device).repeat_interleave(group, 0)
        out = functional.scaled_dot_product_attention(folded, keys, values, attn_mask=self._mask)
        return out.view(self._heads, n, group, width).transpose(0, 1).reshape(n, heads * width)


class GatheredStep(PagedStep):
    """All sequences in one call, keys and values gathered and padded to the longest: the way for GPUs."""

    def __init__(self, pool: KVPool, rows: Rows[tuple[Sequence, int]]) -> None:
        super().__init__(pool, rows)
        totals = [len(sequence) + count for sequence, count in rows]
        longest, most = max(totals), max(self._counts)
        where = np.zeros((len(rows), longest), np.int64)
        seen = np.zeros((len(rows), most, longest), np.bool_)
        packed = np.zeros((len(rows), most), np.int64)  # of each padded query, its place in M
        back, at = [], 0
        for row, ((sequence, count), total) in enumerate(zip(rows, totals, strict=True)):
            where[row] = sequence.slots()[0]  # what is behind the end is masked, but must be finite
            where[row, :total] = sequence.slots()[:total]
            seen[row, :count, :total] = np.arange(total) < np.arange(total - count, total)[:, None] + 1
            seen[row, count:, 0] = True  # padded queries see something, so that nothing becomes NaN
            packed[row, :count] = np.arange(at, at + count)
            back.append(row * most + np.arange(count))
            at += count
        self._where, self._seen = self._to(where), self._to(seen)[:, None]
        self._packed, self._back = self._to(packed), self._to(np.concatenate(back))

    def _to(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(self._device)

    def attend(self, layer: int, q_MHD: Tensor, k_MGD: Tensor, v_MGD: Tensor) -> Tensor:
        """See `SequenceCache`."""
        self._write(layer, k_MGD, v_MGD)
        keys, values = self._pool.store[layer][:, self._where].transpose(2, 3)  # [2, rows, G, T, D]
        queries = q_MHD[self._packed].transpose(1, 2)
        out = functional.scaled_dot_product_attention(queries, keys, values, attn_mask=self._seen, enable_gqa=True)
        return out.transpose(1, 2).flatten(0, 1)[self._back].flatten(1)


def _causal(total: int, count: int, device: torch.device) -> Tensor:
    """[count, total]: which of the tokens each of the last `count` may see."""
    return torch.ones(count, total, dtype=torch.bool, device=device).tril(total - count)
