"""One forward pass over paged sequences with FlexAttention, which reads pages where they lie: a way for GPUs.

The mask does the work of a page table: a query may see a place of the pool if the page there is its sequence's, and
what is written there is not after it. On a GPU the kernel is compiled, and skips blocks that nobody may see.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Rows
from functools import cache
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from mstar_plan.runtime.generation.kv_pool import PAGE, KVPool
from mstar_plan.runtime.generation.paged_step import PagedStep
from mstar_plan.runtime.generation.sequence import Sequence, pages_for


class FlexStep(PagedStep):
    """See `PagedStep`. The pool must hold finite numbers where nothing was written yet."""

    def __init__(self, pool: KVPool, rows: Rows[tuple[Sequence, int]]) -> None:
        super().__init__(pool, rows)
        starts = np.full((len(rows), pool.pages), -1, np.int64)  # of each page, the first token that a row has there
        for row, (sequence, count) in enumerate(rows):
            pages = sequence.slots()[::PAGE][: pages_for(len(sequence) + count)] // PAGE
            starts[row, pages] = np.arange(len(pages)) * PAGE
        starts_RP = torch.from_numpy(starts).to(self._device)
        owner_M = torch.repeat_interleave(torch.arange(len(rows)), torch.tensor(self._counts)).to(self._device)
        places_M = self.positions

        def seen(b: Tensor, h: Tensor, query: Tensor, place: Tensor) -> Tensor:
            del b, h
            start = starts_RP[owner_M[query], place // PAGE]
            return (start >= 0) & (start + place % PAGE <= places_M[query])

        self._mask: BlockMask = create_block_mask(
            seen, None, None, len(owner_M), pool.pages * PAGE, device=str(self._device)
        )

    def attend(self, layer: int, q_MHD: Tensor, k_MGD: Tensor, v_MGD: Tensor) -> Tensor:
        """See `SequenceCache`."""
        # It multiplies by zero what a row may not see: a NaN of one request would be in the answers to all.
        self._write(layer, k_MGD.nan_to_num(), v_MGD.nan_to_num())
        keys, values = (each.transpose(0, 1)[None] for each in self._pool.store[layer])  # [1, G, places, D]
        out: Tensor = _kernel(self._device.type)(
            q_MHD.transpose(0, 1)[None], keys, values, block_mask=self._mask, enable_gqa=True
        )
        return out[0].transpose(0, 1).flatten(1)


@cache
def _kernel(device: str) -> Callable[..., Any]:
    """FlexAttention, on a GPU compiled when it is first used; sizes may change from call to call."""
    plain = cast("Callable[..., Any]", flex_attention)
    return torch.compile(plain, dynamic=True) if device == "cuda" else plain
