"""Snac: audio to codes and back, with noise given from outside.

B requests, C latent channels, T latent steps, n samples.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - its usual name

from mstar_plan.errors import InvalidInputError
from mstar_plan.models.snac.config import SnacConfig
from mstar_plan.models.snac.decoder import Decoder
from mstar_plan.models.snac.encoder import Encoder
from mstar_plan.models.snac.quantiser import Quantiser


class Snac(nn.Module):
    """The whole codec, with state names as published; weight norm is folded when a checkpoint is read."""

    def __init__(self, config: SnacConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = Encoder(config)
        self.quantizer = Quantiser(config)
        self.decoder = Decoder(config)

    @property
    def device(self) -> torch.device:
        """Where it is."""
        return next(self.parameters()).device

    def encode(self, audio_B1n: Tensor) -> list[Tensor]:
        """Codes [B, T / stride] of each book; audio is filled up with silence to whole frames.

        Raises:
            InvalidInputError: Audio is not [B, 1, n] with at least one sample.
        """
        if audio_B1n.ndim != 3 or audio_B1n.shape[1] != 1 or 0 in audio_B1n.shape:
            raise InvalidInputError(f"audio has shape {list(audio_B1n.shape)}; send [B, 1, n]", field="audio")
        whole = self.config.hop_length * self.config.granule
        padded_B1n = F.pad(audio_B1n, (0, -audio_B1n.shape[-1] % whole))
        return self.quantizer.encode(self.encoder(padded_B1n))

    def latent(self, codes: Sequence[Tensor]) -> Tensor:
        """The sum of the codes' vectors [B, C, T].

        Raises:
            InvalidInputError: See `decode`.
        """
        return self.quantizer.decode(codes)

    def decode(self, codes: Sequence[Tensor], noise: Sequence[Tensor] | None = None) -> Tensor:
        """Audio [B, 1, n] in [-1, 1].

        Args:
            codes: [B, T / stride] int64 of each book.
            noise: [B, 1, steps] for each block of the decoder (see `draw_noise`); None: no noise is added.

        Raises:
            InvalidInputError: Codes are unequal in length, out of their book, or do not fill the windows of attention;
                or the noise has other shapes.
        """
        z_BCT = self.latent(codes)
        batch, _, steps = z_BCT.shape
        window = self.config.attn_window_size or 1
        if steps % window:
            raise InvalidInputError(f"codes make {steps} latent steps; send a multiple of {window}", field="codes")
        if noise is not None:
            per_step = [size // self.config.vq_strides[0] for size in self.config.noise_per_frame]
            want = [(batch, 1, steps * each) for each in per_step]
            if [tuple(each.shape) for each in noise] != want:
                shapes = [list(each.shape) for each in noise]
                raise InvalidInputError(f"noise has shapes {shapes}; send {[list(w) for w in want]}", field="noise")
        audio_B1n: Tensor = self.decoder(z_BCT, noise)
        return audio_B1n
