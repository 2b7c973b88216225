"""The codec's encoder: audio to latents."""

from __future__ import annotations

from torch import Tensor, nn

from mstar_plan.models.snac.config import KERNEL, SnacConfig
from mstar_plan.models.snac.layers import Conv, EncoderBlock, WindowAttention


class Encoder(nn.Module):
    """Blocks that halve the rate again and again, with names as published."""

    def __init__(self, config: SnacConfig) -> None:
        super().__init__()
        channels = config.encoder_dim
        layers: list[nn.Module] = [Conv(1, channels, KERNEL)]
        for rate in config.encoder_rates:
            layers.append(EncoderBlock(channels, rate, channels if config.depthwise else 1))
            channels *= 2
        if config.attn_window_size is not None:
            layers.append(WindowAttention(channels, config.attn_window_size))
        layers.append(Conv(channels, channels, KERNEL, groups=channels if config.depthwise else 1))
        self.block = nn.Sequential(*layers)

    def forward(self, audio_B1n: Tensor) -> Tensor:
        """Audio [B, 1, n] to latents [B, C, n / hop_length]; n is a multiple of it."""
        z_BCT: Tensor = self.block(audio_B1n)
        return z_BCT
