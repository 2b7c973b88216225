"""The transformer block that encoder and predictors share; parameter names are those of the published checkpoints.

Shapes: B batch, S tokens, D width, C channels of a head.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from mstar_plan.models.vjepa2.config import TransformerConfig
from mstar_plan.models.vjepa2.rope import rotate

INIT_STD = 0.02

Table = tuple[Tensor, Tensor]
KeyValue = tuple[Tensor, Tensor]


class Attention(nn.Module):
    """Multi-head attention with rotary positions."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.num_heads = config.num_heads
        self.qkv = nn.Linear(config.width, 3 * config.width, bias=config.qkv_bias)
        self.proj = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor, table: Table, mask: Tensor | None = None) -> Tensor:
        """Tokens [B, S, D]; table broadcasts to [B, heads, S, C]; mask [S, S] bool is true where one may look."""
        return self.attend(x, table, mask, None)[0]

    def attend(self, x: Tensor, table: Table, mask: Tensor | None, past: KeyValue | None) -> tuple[Tensor, KeyValue]:
        """The same, behind keys and values [B, heads, P, C] of earlier tokens; also returns all of them."""
        q, k, v = self.qkv(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        q, k = rotate(q, *table), rotate(k, *table)
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        y = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.proj(y.transpose(1, 2).flatten(2)), (k, v)


class MLP(nn.Module):
    """Two linear layers with exact (erf) GELU between."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, hidden)
        self.fc2 = nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        """Maps [..., D] to [..., D]."""
        out: Tensor = self.fc2(functional.gelu(self.fc1(x)))
        return out


class Block(nn.Module):
    """Pre-norm transformer block."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(config.width, eps=config.layer_norm_eps)
        self.attn = Attention(config)
        self.norm2 = nn.LayerNorm(config.width, eps=config.layer_norm_eps)
        self.mlp = MLP(config.width, int(config.width * config.mlp_ratio))

    def forward(self, x: Tensor, table: Table, mask: Tensor | None = None) -> Tensor:
        """See `Attention`."""
        return self.step(x, table, mask, None)[0]

    def step(self, x: Tensor, table: Table, mask: Tensor | None, past: KeyValue | None) -> tuple[Tensor, KeyValue]:
        """See `Attention.attend`."""
        attended, seen = self.attn.attend(self.norm1(x), table, mask, past)
        x = x + attended
        return x + self.mlp(self.norm2(x)), seen


def make_blocks(config: TransformerConfig) -> nn.ModuleList:
    """The blocks of a network."""
    return nn.ModuleList(Block(config) for _ in range(config.depth))


def init_weights(network: nn.Module, blocks: nn.ModuleList) -> None:
    """Truncated normal weights, zero biases; the layers that end a branch are scaled down with depth, as published."""
    for module in network.modules():
        if isinstance(module, nn.Linear | nn.Conv2d | nn.Conv3d):
            nn.init.trunc_normal_(module.weight, std=INIT_STD)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    for number, block in enumerate(blocks, start=1):
        for layer in (block.attn.proj, block.mlp.fc2):  # type: ignore[union-attr]
            layer.weight.data.div_(math.sqrt(2.0 * number))  # type: ignore[union-attr, operator]
