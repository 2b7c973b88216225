"""Attention of many rows to their own tokens and to tokens that all share, without copying the shared ones.

Softmax attention over two sets is the mean of both results, weighted by their sums of exponentials; so the shared set
is attended to by all rows as one long query, and the two results are merged by their log-sum-exp (as in cascade
inference, Ye et al. 2024).

Shapes: R rows, S queries of a row, T own tokens, P shared tokens, Z channels of a head.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

_FLASH_CPU = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)  # fused, never the composite


def can_share(device: torch.device) -> bool:
    """Whether attention on this device tells the log-sum-exp, so that shared tokens need no copy for each row."""
    return device.type == "cpu" and _FLASH_CPU is not None


def attend(queries: Tensor, keys: Tensor, values: Tensor, shared: tuple[Tensor, Tensor] | None) -> Tensor:
    """Attention of each row to its own and the shared tokens.

    Args:
        queries: [R, S, heads, Z], contiguous.
        keys: [R, heads, T, Z] of each row.
        values: [R, heads, T, Z] of each row.
        shared: Keys and values [heads, P, Z] of all, or None; only where `can_share`.

    Returns:
        [R, S, heads, Z].
    """
    q_RhSZ = queries.transpose(1, 2)  # a view: the result has the same layout, so that it needs no copy either
    if _FLASH_CPU is None or keys.device.type != "cpu":
        assert shared is None
        return functional.scaled_dot_product_attention(q_RhSZ, keys, values).transpose(1, 2)
    own: Tensor
    own, own_lse = _FLASH_CPU(q_RhSZ, keys, values)
    own = own.transpose(1, 2)
    if shared is None:
        return own
    r, s, heads, _ = queries.shape
    folded = queries.reshape(1, r * s, heads, -1).transpose(1, 2)
    common: Tensor
    common, lse = _FLASH_CPU(folded, shared[0][None], shared[1][None])
    weight = torch.sigmoid(own_lse.transpose(1, 2) - lse.transpose(1, 2).view(r, s, heads))
    return common.transpose(1, 2).view(own.shape).lerp(own, weight[..., None].to(own.dtype))
