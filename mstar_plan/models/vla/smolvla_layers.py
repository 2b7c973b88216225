"""Layers of SmolVLA: Llama's, and those of the expert that attend to the prefix alone; and the cache between them.

Shapes: B rows, N tokens, D width, F hidden width, H query heads, G key-value heads, R = H / G, W head width, S actions
of a chunk, P places of the prefix, K = P + S.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from mstar_plan.models.vla.gemma import attend, rms_norm, rotate
from mstar_plan.models.vla.prefix_cache import PrefixCache
from mstar_plan.models.vla.smolvla_config import SmolVLAConfig

THETA = 10000.0  # whatever the language model's own configuration says


def turns_of(positions_BN: Tensor, head_width: int, dtype: torch.dtype) -> Tensor:
    """Cosines and sines [2, B, N, W / 2] of positions [B, N], worked out in float32."""
    half = torch.arange(head_width // 2, dtype=torch.float32, device=positions_BN.device)
    angles = positions_BN[..., None].float() / THETA ** (2.0 / head_width * half)
    return torch.stack([angles.cos(), angles.sin()]).to(dtype)


class SmolVLACache(PrefixCache):
    """Keys and values that the expert reads, a pair for each of its layers; see `PrefixCache`.

    Layers that attend to the prefix alone hold what they made of its keys and values, and leave the room unused.
    """

    __slots__ = ("_actions_mask",)

    def __init__(self, kv_LBGKW: Tensor, seen_BK: Tensor | None, turns_2BSW: Tensor, room: int) -> None:
        super().__init__(kv_LBGKW, seen_BK, turns_2BSW, room)
        self._actions_mask: Tensor | None = None

    def actions_mask(self, shared: int) -> Tensor:
        """What each action sees, laid out for `attend`: [B or 1, 1, R * S, K]; itself, those before it, the prefix.

        Args:
            shared: R.
        """
        if self._actions_mask is None:
            places = self.kv_LBGKW.shape[3]
            ones_SK = torch.ones(self.room, places, dtype=torch.bool, device=self.kv_LBGKW.device)
            causal_SK = ones_SK.tril_(self.length)
            mask = causal_SK[None, None]
            mask = mask if self.mask is None else mask & self.mask
            self._actions_mask = mask.repeat(1, 1, shared, 1)
        return self._actions_mask

    @property
    def prefix_mask(self) -> Tensor | None:
        """Which places of the prefix hold something: [B, 1, 1, P]; None: all."""
        return None if self.mask is None else self.mask[..., : self.length]


class SmolLayer(nn.Module):
    """Norms, attention and MLP of one layer.

    Args:
        config: Sizes.
        width: D.
        hidden: F.
        reads_prefix: Its keys and values are made of those of the prefix.
    """

    def __init__(self, config: SmolVLAConfig, width: int, hidden: int, *, reads_prefix: bool = False) -> None:
        super().__init__()
        self.config, self.reads_prefix = config, reads_prefix
        inner, kv = config.heads * config.head_width, config.kv_width
        self.scale1 = nn.Parameter(torch.ones(width))
        if reads_prefix:
            self.q = nn.Linear(width, inner, bias=False)
            self.k = nn.Linear(kv, kv, bias=False)
            self.v = nn.Linear(kv, kv, bias=False)
        else:
            self.qkv = nn.Linear(width, inner + 2 * kv, bias=False)
        self.out = nn.Linear(inner, width, bias=False)
        self.scale2 = nn.Parameter(torch.ones(width))
        self.gate_up = nn.Linear(width, 2 * hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def project(self, z_BND: Tensor, turns_2BNW: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [B, N, H, W], keys and values [B, G, N, W] of tokens; queries and keys are turned."""
        rows, n, _ = z_BND.shape
        heads, groups, width = self.config.heads, self.config.kv_heads, self.config.head_width
        qkv = self.qkv(rms_norm(z_BND, self.scale1, self.config.eps)).view(rows, n, heads + 2 * groups, width)
        qk = rotate(qkv[:, :, : heads + groups], turns_2BNW)
        return qk[:, :, :heads], qk[:, :, heads:].transpose(1, 2), qkv[:, :, heads + groups :].transpose(1, 2)

    def ask(self, z_BND: Tensor, turns_2BNW: Tensor) -> Tensor:
        """Queries [B, N, H, W] of tokens that attend to the prefix alone."""
        rows, n, _ = z_BND.shape
        q = self.q(rms_norm(z_BND, self.scale1, self.config.eps))
        return rotate(q.view(rows, n, self.config.heads, self.config.head_width), turns_2BNW)

    def take(self, keys_BGPW: Tensor, values_BGPW: Tensor) -> tuple[Tensor, Tensor]:
        """What this layer makes of the prefix's keys and values: [B, G, P, W] each."""
        return _mapped(self.k, keys_BGPW), _mapped(self.v, values_BGPW)

    def finish(self, z_BND: Tensor, attended_BNI: Tensor) -> Tensor:
        """The tokens after both residuals."""
        z_BND = z_BND + self.out(attended_BNI)
        gate, up = self.gate_up(rms_norm(z_BND, self.scale2, self.config.eps)).chunk(2, -1)
        done: Tensor = z_BND + self.down(functional.silu(gate) * up)
        return done


def _mapped(linear: nn.Linear, part_BGPW: Tensor) -> Tensor:
    rows, groups, places, width = part_BGPW.shape
    flat: Tensor = linear(part_BGPW.transpose(1, 2).reshape(rows, places, groups * width))
    return flat.view(rows, places, groups, width).transpose(1, 2)


class Expert(nn.Module):
    """The layers that turn noisy actions into a velocity.

    Args:
        config: Sizes.
    """

    def __init__(self, config: SmolVLAConfig) -> None:
        super().__init__()
        self.config = config
        beside = [layer for layer in range(config.layers) if config.expert_of(layer) is not None]
        self.layers = nn.ModuleList(
            SmolLayer(config, config.expert_width, config.expert_hidden, reads_prefix=not config.attends_itself(layer))
            for layer in beside
        )
        self.scale = nn.Parameter(torch.ones(config.expert_width))

    def forward(self, z_BSD: Tensor, cache: SmolVLACache, alone_2BSW: Tensor) -> Tensor:
        """Maps embedded actions [B, S, D] to what comes out of the last norm.

        Args:
            z_BSD: Noisy actions with their time.
            cache: What was seen; its room is overwritten.
            alone_2BSW: Turns of actions that attend to the prefix alone, whose positions start at 0.
        """
        length = cache.length
        actions_mask, prefix_mask = cache.actions_mask(self.config.heads // self.config.kv_heads), cache.prefix_mask
        for layer, keys, values in zip(self.layers, cache.keys, cache.values, strict=True):
            assert isinstance(layer, SmolLayer)
            if layer.reads_prefix:
                q = layer.ask(z_BSD, alone_2BSW)
                attended = attend(q, keys[:, :, :length], values[:, :, :length], prefix_mask)
            else:
                q, k, v = layer.project(z_BSD, cache.turns_2BSW)
                keys[:, :, length:].copy_(k)
                values[:, :, length:].copy_(v)
                attended = attend(q, keys, values, actions_mask)
            z_BSD = layer.finish(z_BSD, attended)
        return rms_norm(z_BSD, self.scale, self.config.eps)
