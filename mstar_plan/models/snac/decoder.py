"""The codec's decoder: latents to audio, at once or part by part.

B requests, C channels, T steps at the rate where it stands, n samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from torch import Tensor, nn

from mstar_plan.models.snac.config import DILATIONS, KERNEL, SnacConfig
from mstar_plan.models.snac.layers import Conv, Noise, ResidualUnit, Snake, Streaming, Upsample, WindowAttention

NoiseAt = Callable[[int, int], Tensor]  # (block, how many steps) -> [B, 1, steps], the next of this block


class DecoderBlock(nn.Module):
    """One step up in rate, noise, then residual units."""

    def __init__(self, channels: int, rate: int, config: SnacConfig) -> None:
        super().__init__()
        half = channels // 2
        groups = half if config.depthwise else 1
        noise = [Noise(half)] if config.noise else []
        units = [ResidualUnit(half, dilation, groups) for dilation in DILATIONS]
        self.block = nn.Sequential(Snake(channels), Upsample(channels, half, rate), *noise, *units)

    def forward(self, x_BCT: Tensor, noise_B1T: Tensor | None) -> Tensor:
        """[B, C, T] to [B, C / 2, T rate]; None for no noise."""
        for layer in self.block:
            if not isinstance(layer, Noise):
                x_BCT = layer(x_BCT)
            elif noise_B1T is not None:
                x_BCT = layer(x_BCT, noise_B1T)
        return x_BCT


class Decoder(nn.Module):
    """Blocks that raise the rate, with names as published.

    `begin` and `stream` are the same computation part by part: what they keep is one list of tensors, led by B.
    """

    def __init__(self, config: SnacConfig) -> None:
        super().__init__()
        width, channels = config.width, config.decoder_dim
        layers: list[nn.Module] = [Conv(width, channels, KERNEL)]
        if config.depthwise:
            layers = [Conv(width, width, KERNEL, groups=width), Conv(width, channels)]
        if config.attn_window_size is not None:
            layers.append(WindowAttention(channels, config.attn_window_size))
        for rate in config.decoder_rates:
            layers.append(DecoderBlock(channels, rate, config))
            channels //= 2
        self.model = nn.Sequential(*layers, Snake(channels), Conv(channels, 1, KERNEL), nn.Tanh())

    def forward(self, z_BCT: Tensor, noise: Sequence[Tensor] | None = None) -> Tensor:
        """Latents [B, C, T] to audio [B, 1, n]; `noise` [B, 1, steps] for each block, or None for none."""
        block = 0
        for layer in self.model:
            if isinstance(layer, DecoderBlock):
                z_BCT = layer(z_BCT, noise[block] if noise else None)
                block += 1
            else:
                z_BCT = layer(z_BCT)
        return z_BCT

    def begin(self, rows: int) -> list[Tensor]:
        """What is kept before the first part, for `rows` sequences."""
        like = next(self.parameters()).new_zeros(rows, 1, 0)
        return [one for layer in self._flat() if isinstance(layer, Streaming) for one in layer.begin(like)]

    def stream(
        self, z_BCT: Tensor, kept: Sequence[Tensor], noise: NoiseAt | None, last: bool
    ) -> tuple[Tensor, list[Tensor]]:
        """The samples [B, 1, n] that are certain now, and what is kept; `last` ends the sequences."""
        before, after, block = iter(kept), [], 0
        for layer in self._flat():
            if isinstance(layer, Streaming):
                z_BCT, keeps = layer.stream(z_BCT, list(islice(before, layer.slots)), last)
                after += keeps
            elif not isinstance(layer, Noise):
                z_BCT = layer(z_BCT)
            else:
                if noise is not None and z_BCT.shape[-1]:
                    z_BCT = layer(z_BCT, noise(block, z_BCT.shape[-1]))
                block += 1
        return z_BCT, after

    def _flat(self) -> Iterator[nn.Module]:
        for layer in self.model:
            if isinstance(layer, DecoderBlock):
                yield from layer.block
            else:
                yield layer
