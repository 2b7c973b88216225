"""A transformer block laid out for rollouts: one new frame of many candidates behind cached keys and values.

Exact: the same numbers as `Block` to rounding, with less around the matrix products. Channels of queries and keys are
reordered (even ones first; a dot product does not mind), so that rotary positions need no shuffling of neighbours.

Shapes: R rows (candidates of a chunk), S tokens of a frame, D width, Z channels of a head, T cached tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mstar_plan.models.layers.fused_linear import FusedLinear
from mstar_plan.models.layers.shared_attention import attend
from mstar_plan.models.vjepa2.blocks import Block, Table


@dataclass(frozen=True, eq=False)
class Rotation:
    """The rotary table of one frame for reordered channels: each [S, 1, 1, Z / 2]."""

    cos_even: Tensor
    sin_even: Tensor  # negated
    cos_odd: Tensor
    sin_odd: Tensor

    @classmethod
    def of(cls, table: Table, dtype: torch.dtype) -> Rotation:
        """From cosines and sines [S, Z]."""
        cos, sin = (part.to(dtype)[:, None, None] for part in table)
        return cls(*(t.contiguous() for t in (cos[..., ::2], -sin[..., ::2], cos[..., 1::2], sin[..., 1::2])))


@dataclass(frozen=True, eq=False)
class Segment:
    """The rows of a chunk that belong to one request, with their cache in each block.

    Attributes:
        rows: Where they are in the chunk.
        keys: [R, heads, T, Z] for each block, the new frame's places last.
        values: The same.
        new_keys: Those places, [R, S, heads, Z] for each block.
        new_values: The same.
        shared: Keys and values [heads, P, Z] of past frames for each block, or None.
    """

    rows: slice
    keys: Sequence[Tensor]
    values: Sequence[Tensor]
    new_keys: Sequence[Tensor]
    new_values: Sequence[Tensor]
    shared: Sequence[tuple[Tensor, Tensor]] | None


class Workspace:
    """Rotated queries and keys of a chunk, and views of them: made once a step, used by every block."""

    def __init__(self, rows: int, tokens: int, heads: int, channels: int, like: Tensor) -> None:
        turned = like.new_empty(2, rows, tokens, heads, 2, channels // 2)
        halves = turned.permute(1, 2, 0, 3, 4, 5)
        self.even, self.odd = halves[..., 0, :], halves[..., 1, :]  # [R, S, 2, heads, Z / 2]
        self.queries, self.keys = turned.view(2, rows, tokens, heads, channels)
        self.shape = (rows, tokens, 3, heads, 2, channels // 2)

    def turn(self, qkv: Tensor, rotation: Rotation) -> None:
        """Rotates the queries and keys of qkv [R, S, 3 D]."""
        parts = qkv.view(self.shape)[:, :, :2]
        even, odd = parts[..., 0, :], parts[..., 1, :]
        torch.mul(even, rotation.cos_even, out=self.even).addcmul_(odd, rotation.sin_even)
        torch.mul(odd, rotation.cos_odd, out=self.odd).addcmul_(even, rotation.sin_odd)


class RolloutBlock:
    """`Block` for rollouts.

    Args:
        block: Has the weights; they are copied where they are laid out anew.
        number: Which block it is, for the cache.
        rows: About how many tokens a chunk has.
    """

    def __init__(self, block: Block, number: int, rows: int) -> None:
        self.number = number
        weight, bias = reorder_heads(block.attn.qkv.weight, block.attn.qkv.bias, block.attn.num_heads)
        self.qkv = FusedLinear(weight, bias, rows=rows)
        self.proj = FusedLinear(block.attn.proj.weight, block.attn.proj.bias, rows=rows)
        self.fc1 = FusedLinear(block.mlp.fc1.weight, block.mlp.fc1.bias, "gelu", rows=rows)
        self.fc2 = FusedLinear(block.mlp.fc2.weight, block.mlp.fc2.bias, rows=rows)
        self.norm1, self.norm2 = (
            ((block.norm1.normalized_shape), n.weight.detach(), n.bias.detach(), n.eps)
            for n in (block.norm1, block.norm2)
        )

    def project(self, x: Tensor) -> Tensor:
        """Queries, keys and values [..., 3 D] of x [..., D]: the part of a block in which tokens do not meet."""
        return self.qkv(torch.layer_norm(x, *self.norm1))

    def __call__(
        self,
        x: Tensor,
        rotation: Rotation,
        segments: Sequence[Segment],
        space: Workspace,
        known: Tensor | None = None,
    ) -> Tensor:
        """Runs the block on x [R, S, D]; `known` [R, n, 3 D] is `project` of the last n tokens, if it is known."""
        if known is None:
            qkv = self.project(x)
        else:
            qkv = torch.cat([self.project(x[:, : x.shape[1] - known.shape[1]]), known], 1)
        y = self._attention(qkv, rotation, segments, space)
        x = self.proj.plus(y, x)
        return self.fc2.plus(self.fc1(torch.layer_norm(x, *self.norm2)), x)

    def _attention(self, qkv: Tensor, rotation: Rotation, segments: Sequence[Segment], space: Workspace) -> Tensor:
        number = self.number
        space.turn(qkv, rotation)
        values = qkv.view(space.shape)[:, :, 2].flatten(-2)
        parts = []
        for each in segments:
            each.new_keys[number].copy_(space.keys[each.rows])
            each.new_values[number].copy_(values[each.rows])
            shared = None if each.shared is None else each.shared[number]
            parts.append(attend(space.queries[each.rows], each.keys[number], each.values[number], shared))
        joined = parts[0] if len(parts) == 1 else torch.cat(parts)
        return joined.flatten(2)


def reorder_heads(weight: Tensor, bias: Tensor | None, heads: int) -> tuple[Tensor, Tensor | None]:
    """Weight [3 D, D] and bias [3 D] of queries, keys and values, with a head's even channels before its odd ones."""
    width = weight.shape[1]
    order = torch.arange(width, device=weight.device).view(heads, -1, 2).transpose(1, 2).flatten()
    index = torch.cat([order, order + width, torch.arange(2 * width, 3 * width, device=weight.device)])
    return weight.detach()[index], None if bias is None else bias.detach()[index]
