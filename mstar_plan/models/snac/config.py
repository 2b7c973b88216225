"""Sizes of a SNAC codec, as its published configurations state them, and what follows from them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

from mstar_plan.errors import WeightsError, did_you_mean

HEAD_WIDTH = 64  # of the windowed attention
DILATIONS = (1, 3, 9)  # of the residual units of a block
KERNEL = 7
MOST = 2**16


@dataclass(frozen=True)
class SnacConfig:
    """Sizes under their published names; the defaults are those of the 24 kHz model.

    A latent step is `hop_length` samples; a frame is the latent steps of one code of the coarsest book.

    Attributes:
        sampling_rate: Samples a second.
        encoder_dim: Channels behind the encoder's first layer; every block doubles them.
        encoder_rates: Downsampling of each block of the encoder.
        latent_dim: Channels of the latent; None: what the encoder ends with, and nothing else is possible.
        decoder_dim: Channels before the decoder's first block; every block halves them.
        decoder_rates: Upsampling of each block of the decoder.
        attn_window_size: Latent steps of a window of attention; None for no attention.
        codebook_size: Codes of each book.
        codebook_dim: Width of a code's vector.
        vq_strides: Latent steps of a code of each book, coarsest first.
        noise: The decoder's blocks add noise.
        depthwise: The wide convolutions work on each channel by itself.
    """

    sampling_rate: int = 24000
    encoder_dim: int = 48
    encoder_rates: tuple[int, ...] = (2, 4, 8, 8)
    latent_dim: int | None = None
    decoder_dim: int = 1024
    decoder_rates: tuple[int, ...] = (8, 8, 4, 2)
    attn_window_size: int | None = None
    codebook_size: int = 4096
    codebook_dim: int = 8
    vq_strides: tuple[int, ...] = (4, 2, 1)
    noise: bool = True
    depthwise: bool = True

    def __post_init__(self) -> None:
        for name in ("sampling_rate", "encoder_dim", "decoder_dim", "codebook_size", "codebook_dim"):
            _need(name, getattr(self, name), 1, 10**6 if name == "sampling_rate" else MOST)
        for name, low, high in (("encoder_rates", 2, 64), ("decoder_rates", 2, 64), ("vq_strides", 1, 256)):
            values = getattr(self, name)
            if not isinstance(values, tuple) or not 1 <= len(values) <= 8:
                raise WeightsError(f"{name} is {values!r}; it needs 1 to 8 whole numbers", field=name)
            for value in values:
                _need(name, value, low, high)
        if self.attn_window_size is not None:
            _need("attn_window_size", self.attn_window_size, 1, 4096)
        for name in ("noise", "depthwise"):
            if not isinstance(getattr(self, name), bool):
                raise WeightsError(f"{name} is {getattr(self, name)!r}; it needs true or false", field=name)
        self._check_widths()

    def _check_widths(self) -> None:
        if self.latent_dim not in (None, self.width):
            raise WeightsError(
                f"latent_dim is {self.latent_dim}; the encoder ends with {self.width} channels, which it must be",
                field="latent_dim",
            )
        halvings = 2 ** len(self.decoder_rates)
        if self.decoder_dim % halvings or self.width > MOST:
            raise WeightsError(
                f"decoder_dim {self.decoder_dim} cannot be halved {len(self.decoder_rates)} times, or the encoder's "
                f"{self.width} channels are over {MOST}",
                field="decoder_dim",
            )
        if any(self.vq_strides[0] % stride for stride in self.vq_strides):
            raise WeightsError(f"vq_strides are {self.vq_strides}; each must divide the first", field="vq_strides")
        for name, width in (("encoder_dim", self.width), ("decoder_dim", self.decoder_dim)):
            if self.attn_window_size is not None and width % HEAD_WIDTH:
                raise WeightsError(
                    f"{name} gives {width} channels; attention needs a multiple of {HEAD_WIDTH}", field=name
                )

    @property
    def width(self) -> int:
        """Channels of the latent."""
        return self.encoder_dim << len(self.encoder_rates)

    @property
    def hop_length(self) -> int:
        """Samples that the encoder takes for one latent step."""
        return math.prod(self.encoder_rates)

    @property
    def granule(self) -> int:
        """Latent steps of which the codec works on whole multiples: one frame, or several that fill a window."""
        return math.lcm(self.vq_strides[0], self.attn_window_size or 1)

    @property
    def frame_samples(self) -> int:
        """Samples that the decoder gives for one frame."""
        return self.vq_strides[0] * math.prod(self.decoder_rates)

    @property
    def codes_per_frame(self) -> tuple[int, ...]:
        """Codes of each book in one frame."""
        return tuple(self.vq_strides[0] // stride for stride in self.vq_strides)

    @property
    def noise_per_frame(self) -> tuple[int, ...]:
        """Noise values that each block of the decoder takes in one frame."""
        if not self.noise:
            return ()
        return tuple(
            self.vq_strides[0] * math.prod(self.decoder_rates[: i + 1]) for i in range(len(self.decoder_rates))
        )

    @property
    def lookahead(self) -> int:
        """Samples before the end of the known codes that still depend on codes to come; windows of attention aside.

        Every convolution of reach r to the right holds back r steps of its own rate; upsampling multiplies what is held
        back before it, and its own padding comes on top.
        """
        held = KERNEL // 2
        for rate in self.decoder_rates:
            held = held * rate + upsampling_pad(rate) + sum(KERNEL // 2 * dilation for dilation in DILATIONS)
        return held + KERNEL // 2

    def certain_samples(self, frames: int) -> int:
        """Samples that do not depend on what follows after the first `frames` frames."""
        hop = math.prod(self.decoder_rates)
        steps = max(0, frames * self.vq_strides[0] - KERNEL // 2)
        steps -= steps % (self.attn_window_size or 1)
        return max(0, steps * hop - (self.lookahead - KERNEL // 2 * hop))

    @property
    def first_frames(self) -> int:
        """Frames after which the first samples are certain."""
        return next(frames for frames in count(1) if self.certain_samples(frames))

    @staticmethod
    def from_published(values: Mapping[str, Any]) -> SnacConfig:
        """Reads a published `config.json`.

        Raises:
            WeightsError: A key is unknown or a value is refused.
        """
        known = {each.name for each in dataclasses.fields(SnacConfig)}
        for key in values:
            if key not in known:
                raise WeightsError(f"the codec's config has unknown {key!r}{did_you_mean(key, known)}", field=key)
        fields: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in values.items()}
        return SnacConfig(**fields)


def upsampling_pad(rate: int) -> int:
    """Samples that an upsampling layer cuts off at its left; at its right it cuts off one less where `rate` is odd."""
    return -(-rate // 2)


def _need(name: str, value: Any, low: int, high: int) -> None:
    if type(value) is not int or not low <= value <= high:
        raise WeightsError(f"{name} is {value!r}; it needs a whole number from {low} to {high}", field=name)
