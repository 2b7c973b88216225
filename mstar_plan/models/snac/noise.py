"""Noise of the decoder's blocks, a function of (seed, block, frame) alone: a stream draws what one shot draws.

B requests, T steps at a block's rate.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from mstar_plan.models.snac.config import SnacConfig


def frame_noise(config: SnacConfig, seed: int, block: int, frame: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """Standard normal values of one frame at one block's rate; counter-based (Philox, Salmon et al. 2011)."""
    bits = np.random.Philox(key=np.array([seed, block], np.uint64), counter=np.array([0, 0, frame, 0], np.uint64))
    return np.random.Generator(bits).standard_normal(config.noise_per_frame[block], dtype=np.float32)


def noise_between(config: SnacConfig, seed: int, block: int, start: int, stop: int) -> Tensor:
    """[stop - start] values of one sequence, from step `start` on."""
    size = config.noise_per_frame[block]
    first, end = start // size, -(-stop // size)
    whole = np.concatenate([frame_noise(config, seed, block, frame) for frame in range(first, end)])
    return torch.from_numpy(whole[start - first * size : stop - first * size])


def draw_noise(config: SnacConfig, seeds: Sequence[int], frames: int) -> list[Tensor]:
    """Noise [B, 1, T] for each block of the decoder, for sequences of `frames` frames; seeds are 0 <= seed < 2**64."""
    return [
        torch.stack([noise_between(config, seed, block, 0, size * frames) for seed in seeds])[:, None]
        for block, size in enumerate(config.noise_per_frame)
    ]
