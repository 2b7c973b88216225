"""The V-JEPA 2 encoder: tubelets of pixels to tokens.

Shapes: B batch, T frames, N tokens, K kept tokens, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mstar_plan.errors import InvalidInputError
from mstar_plan.models.vjepa2.blocks import init_weights, make_blocks
from mstar_plan.models.vjepa2.config import EncoderConfig
from mstar_plan.models.vjepa2.rope import patch_places, rope_table

CHANNELS = 3


class PatchEmbed(nn.Module):
    """Cuts pixels into patches (tubelets of them for video) and maps each to a token."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        p = config.patch_size
        size = (config.tubelet_size, p, p)
        self.proj: nn.Conv2d | nn.Conv3d = (
            nn.Conv3d(CHANNELS, config.embed_dim, size, size)
            if config.num_frames > 1
            else nn.Conv2d(CHANNELS, config.embed_dim, p, p)
        )

    def forward(self, pixels: Tensor) -> Tensor:
        """Pixels [B, 3, T, H_px, W_px] (or [B, 3, H_px, W_px] for still pictures) to [B, N, D]."""
        out: Tensor = self.proj(pixels).flatten(2).transpose(1, 2)
        return out


class VJEPA2Encoder(nn.Module):
    """V-JEPA 2 vision transformer.

    Args:
        config: Its sizes.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.patch_embed = PatchEmbed(config)
        self.blocks = make_blocks(config)
        self.norm = nn.LayerNorm(config.embed_dim, eps=config.layer_norm_eps)
        init_weights(self, self.blocks)

    def forward(self, pixels: Tensor, kept: Tensor | None = None) -> Tensor:
        """Encodes pictures or clips.

        Args:
            pixels: [B, 3, T, H_px, W_px] normalised; [B, 3, H_px, W_px] for an encoder of still pictures. The sides may
                differ from the training size; they are multiples of the patch.
            kept: [B, K] ids of the tokens to keep; their positions are those of their ids.

        Returns:
            [B, N, D], or [B, K, D]: ordered by frame, row, column.

        Raises:
            InvalidInputError: The pixels do not fit the patches.
        """
        return self.hidden_states(pixels, kept)[-1]

    def hidden_states(self, pixels: Tensor, kept: Tensor | None = None) -> list[Tensor]:
        """The tokens after patch embedding and after each block, and those of `forward` last."""
        self._check(pixels)
        config = self.config
        grid = (pixels.shape[-2] // config.patch_size, pixels.shape[-1] // config.patch_size)
        x = self.patch_embed(pixels)
        ids = torch.arange(x.shape[1], device=x.device)
        if kept is not None:
            x = x.gather(1, kept[..., None].expand(-1, -1, x.shape[-1]))
            ids = kept[:, None]  # one axis for the heads
        table = rope_table(*patch_places(ids, grid), config.embed_dim // config.num_heads)
        states = [x]
        for block in self.blocks:
            states.append(block(states[-1], table))
        return [*states, self.norm(states[-1])]

    def _check(self, pixels: Tensor) -> None:
        config, still = self.config, self.config.num_frames == 1
        needed = "[B, 3, H_px, W_px]" if still else "[B, 3, T, H_px, W_px]"
        if pixels.ndim != (4 if still else 5) or pixels.shape[1] != CHANNELS:
            raise InvalidInputError(f"pixels have shape {list(pixels.shape)}; this encoder needs {needed}")
        steps = (config.patch_size,) * 2 if still else (config.tubelet_size, config.patch_size, config.patch_size)
        if any(n == 0 or n % step for n, step in zip(pixels.shape[2:], steps, strict=True)):
            raise InvalidInputError(
                f"pixels have shape {list(pixels.shape)}; {needed[4:]} needs multiples of {list(steps)} there"
            )
