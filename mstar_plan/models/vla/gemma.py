"""Gemma layers as pi0 uses them: a prefix that leaves keys and values behind, and an action expert that reads them.

Both towers have weights of their own, but equal key-value heads, so that the expert's tokens attend to the prefix in
every layer. RMS norms scale by 1 + w (Gemma), or, in pi0.5's expert, by numbers that the flow's time gives (adaRMS:
openpi's gemma.py, LeRobot's pi_gemma.py).

Shapes: B rows, N tokens, D width, F hidden width, H query heads, G key-value heads, R = H / G, W head width, K places
of keys and values, M = 2 * depth + 1 norms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from mstar_plan.errors import ConfigError


@dataclass(frozen=True)
class GemmaConfig:
    """Sizes of one tower.

    Attributes:
        width: D.
        depth: Layers.
        hidden: F of the MLP.
        heads: H.
        kv_heads: G; it divides H.
        head_width: W, an even number.
        theta: Base of the rotary embedding.
        eps: Of the RMS norms.
    """

    width: int = 2048
    depth: int = 18
    hidden: int = 16384
    heads: int = 8
    kv_heads: int = 1
    head_width: int = 256
    theta: float = 10000.0
    eps: float = 1e-6

    def __post_init__(self) -> None:
        for name in ("width", "depth", "hidden", "heads", "kv_heads", "head_width"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise ConfigError(f"gemma {name} is {value!r}; it needs a whole number of at least 1", field=name)
        if self.heads % self.kv_heads:
            what = f"{self.heads} query heads do not divide among {self.kv_heads} key-value heads"
            raise ConfigError(what, field="kv_heads")
        if self.head_width % 2:
            raise ConfigError(f"head_width {self.head_width} is odd; rotary pairs need it even", field="head_width")
        if not (self.theta > 0 and self.eps > 0):
            raise ConfigError(f"gemma theta {self.theta} and eps {self.eps} need to be positive", field="theta")


def rotary_turns(positions_BN: Tensor, config: GemmaConfig, dtype: torch.dtype) -> Tensor:
    """Cosines and sines [2, B, N, W / 2] of positions [B, N] (Su et al. 2021)."""
    even = torch.arange(0, config.head_width, 2, dtype=torch.float32, device=positions_BN.device)
    angles = positions_BN[..., None].float() * (1.0 / config.theta ** (even / config.head_width))
    return torch.stack([angles.cos(), angles.sin()]).to(dtype)


def rotate(x_BNHW: Tensor, turns_2BNW: Tensor) -> Tensor:
    """Turns pairs (i, i + W / 2) of each head by the position's angles."""
    cos, sin = turns_2BNW[:, :, :, None]
    first, second = x_BNHW.chunk(2, -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


def attend(q_BNHW: Tensor, keys_BGKW: Tensor, values_BGKW: Tensor, mask_B11K: Tensor | None) -> Tensor:
    """Attention [B, N, H * W]; heads that share keys are laid one behind the other, so that no key is copied."""
    rows, n, heads, width = q_BNHW.shape
    groups = keys_BGKW.shape[1]
    q = q_BNHW.view(rows, n, groups, heads // groups, width).permute(0, 2, 3, 1, 4).reshape(rows, groups, -1, width)
    out = functional.scaled_dot_product_attention(q, keys_BGKW, values_BGKW, attn_mask=mask_B11K)
    return out.view(rows, groups, heads // groups, n, width).permute(0, 3, 1, 2, 4).reshape(rows, n, heads * width)


def rms_norm(x: Tensor, scale: Tensor | None, eps: float) -> Tensor:
    """Scaled RMS norm over the last axis, in float32."""
    return functional.rms_norm(x.float(), x.shape[-1:], scale, eps).to(x.dtype)


class Places(NamedTuple):
    """Keys and values of K places.

    Attributes:
        keys: [B, G, K, W] of each layer.
        values: Likewise.
        mask: [B, 1, 1, K], which places hold something; None: all.
    """

    keys: Sequence[Tensor]
    values: Sequence[Tensor]
    mask: Tensor | None


class GemmaLayer(nn.Module):
    """Weights of one layer; queries, keys and values in one projection, gate and up in another.

    Args:
        config: Sizes.
        adaptive: Its norms have no scales of their own.
    """

    def __init__(self, config: GemmaConfig, adaptive: bool) -> None:
        super().__init__()
        inner = config.heads * config.head_width
        self.config = config
        self.qkv = nn.Linear(config.width, inner + 2 * config.kv_heads * config.head_width, bias=False)
        self.out = nn.Linear(inner, config.width, bias=False)
        self.gate_up = nn.Linear(config.width, 2 * config.hidden, bias=False)
        self.down = nn.Linear(config.hidden, config.width, bias=False)
        self.scale1 = None if adaptive else nn.Parameter(torch.ones(config.width))
        self.scale2 = None if adaptive else nn.Parameter(torch.ones(config.width))

    def project(self, h_BND: Tensor, turns_2BNW: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [B, N, H, W], keys and values [B, G, N, W]; queries and keys are turned."""
        rows, n, _ = h_BND.shape
        heads, groups, width = self.config.heads, self.config.kv_heads, self.config.head_width
        qkv = self.qkv(h_BND).view(rows, n, heads + 2 * groups, width)
        qk = rotate(qkv[:, :, : heads + groups], turns_2BNW)
        return qk[:, :, :heads], qk[:, :, heads:].transpose(1, 2), qkv[:, :, heads + groups :].transpose(1, 2)

    def mlp(self, h_BND: Tensor) -> Tensor:
        """Gated MLP: down(gelu(gate) * up)."""
        gate, up = self.gate_up(h_BND).chunk(2, -1)
        out: Tensor = self.down(functional.gelu(gate, approximate="tanh") * up)
        return out


class GemmaTower(nn.Module):
    """Layers of one tower, without embedding and head.

    Args:
        config: Sizes.
        condition: Width of what gives the norms their numbers; 0: plain norms.
        final: Whether it has the norm after the last layer; a prefix that is only attended to needs none.
    """

    def __init__(self, config: GemmaConfig, condition: int = 0, final: bool = True) -> None:
        super().__init__()
        self.config = config
        self.layers = nn.ModuleList([GemmaLayer(config, condition > 0) for _ in range(config.depth)])
        self.scale = nn.Parameter(torch.ones(config.width)) if final and not condition else None
        norms = (2 * config.depth + 1) * 3 * config.width
        self.modulation = nn.Linear(condition, norms) if condition else None

    def fill(self, z_BND: Tensor, turns_2BNW: Tensor, places: Places) -> None:
        """Runs a prefix in which every token sees all others, and writes its keys and values.

        Args:
            z_BND: Embedded tokens.
            turns_2BNW: Of their positions.
            places: N places, to be written.
        """
        last = len(self.layers) - 1
        for i, layer in enumerate(self.layers):
            assert isinstance(layer, GemmaLayer)
            q, k, v = layer.project(rms_norm(z_BND, layer.scale1, self.config.eps), turns_2BNW)
            places.keys[i].copy_(k)
            places.values[i].copy_(v)
            if i == last:  # nobody reads what the prefix itself would become
                return
            z_BND = z_BND + layer.out(attend(q, places.keys[i], places.values[i], places.mask))
            z_BND = z_BND + layer.mlp(rms_norm(z_BND, layer.scale2, self.config.eps))

    def extend(
        self,
        z_BND: Tensor,
        turns_2BNW: Tensor,
        places: Places,
        at: int,
        modulation: Sequence[Tensor] | None = None,
    ) -> Tensor:
        """Runs tokens that see all places of keys and values, their own among them.

        Args:
            z_BND: Embedded tokens.
            turns_2BNW: Of their positions.
            places: Keys and values; those of places `at` to `at + N` are overwritten.
            at: Place of the first token.
            modulation: 1 + scale, shift and gate of each norm, one after the other, [B, 1 or N, D] each; None where the
                norms are plain.

        Returns:
            [B, N, D], normed.
        """
        eps, end = self.config.eps, at + z_BND.shape[1]
        for i, layer in enumerate(self.layers):
            assert isinstance(layer, GemmaLayer)
            if modulation is None:
                h_BND = rms_norm(z_BND, layer.scale1, eps)
            else:
                scale1, shift1, gate1, scale2, shift2, gate2 = modulation[6 * i : 6 * i + 6]
                h_BND = torch.addcmul(shift1, rms_norm(z_BND, None, eps), scale1)
            q, k, v = layer.project(h_BND, turns_2BNW)
            places.keys[i][:, :, at:end].copy_(k)
            places.values[i][:, :, at:end].copy_(v)
            y_BND = layer.out(attend(q, places.keys[i], places.values[i], places.mask))
            if modulation is None:
                z_BND = z_BND + y_BND
                z_BND = z_BND + layer.mlp(rms_norm(z_BND, layer.scale2, eps))
            else:
                z_BND = torch.addcmul(z_BND, y_BND, gate1)
                h_BND = torch.addcmul(shift2, rms_norm(z_BND, None, eps), scale2)
                z_BND = torch.addcmul(z_BND, layer.mlp(h_BND), gate2)
        if modulation is None:
            return rms_norm(z_BND, self.scale, eps)
        scale, shift, _ = modulation[-3:]
        return torch.addcmul(shift, rms_norm(z_BND, None, eps), scale)

    def modulations(self, condition_ND: Tensor) -> Tensor:
        """What each norm does at each of N times: [N, 3 M, D]: 1 + scale, shift, gate of every norm in order."""
        assert self.modulation is not None, "this tower's norms are plain"
        made = self.modulation(condition_ND).view(len(condition_ND), -1, 3, self.config.width).float()
        made = torch.stack([made[:, :, 0] + 1, made[:, :, 1], made[:, :, 2]], 2)
        first = self.layers[0]
        assert isinstance(first, GemmaLayer)
        return made.flatten(1, 2).to(first.qkv.weight.dtype)


def gemma_names(
    config: GemmaConfig, there: str, here: str, *, adaptive: bool, final: bool
) -> dict[str, tuple[str, ...]]:
    """Published names of a tower's tensors, by ours; several are stacked along axis 0 in their order.

    Norm scales are stored as w and used as 1 + w: whoever loads them adds the 1.

    Args:
        config: Sizes.
        there: Prefix of the published names, with its dot: before "layers".
        here: Prefix of ours, with its dot.
        adaptive: See `GemmaTower`.
        final: Likewise.
    """
    names: dict[str, tuple[str, ...]] = {}
    dense: list[str] = []
    for i in range(config.depth):
        ours, theirs = f"{here}layers.{i}.", f"{there}layers.{i}."
        names[f"{ours}qkv.weight"] = tuple(f"{theirs}self_attn.{p}_proj.weight" for p in "qkv")
        names[f"{ours}out.weight"] = (f"{theirs}self_attn.o_proj.weight",)
        names[f"{ours}gate_up.weight"] = (f"{theirs}mlp.gate_proj.weight", f"{theirs}mlp.up_proj.weight")
        names[f"{ours}down.weight"] = (f"{theirs}mlp.down_proj.weight",)
        norms = (f"{theirs}input_layernorm", f"{theirs}post_attention_layernorm")
        dense += norms
        if not adaptive:
            names[f"{ours}scale1"], names[f"{ours}scale2"] = (f"{norms[0]}.weight",), (f"{norms[1]}.weight",)
    if adaptive:
        for kind in ("weight", "bias"):
            names[f"{here}modulation.{kind}"] = tuple(f"{norm}.dense.{kind}" for norm in [*dense, f"{there}norm"])
    elif final:
        names[f"{here}scale"] = (f"{there}norm.weight",)
    return names
