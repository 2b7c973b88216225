"""Rotary positions (Su et al. 2021) as complex factors; Llama 3's stretch of slow frequencies.

Shapes: M positions, D head width.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mstar_plan.models.llama.config import LlamaConfig, RopeScaling


def frequencies(config: LlamaConfig) -> Tensor:
    """[D/2] float64 radians a position."""
    steps = torch.arange(0, config.head_dim, 2, dtype=torch.float64) / config.head_dim
    plain = config.rope_theta**-steps
    return plain if config.rope_scaling is None else _stretched(plain, config.rope_scaling)


def rotations(config: LlamaConfig) -> Tensor:
    """[positions, 1, D/2] complex64, for every position that the model may be asked about."""
    angles = torch.outer(
        torch.arange(config.max_position_embeddings, dtype=torch.float32), frequencies(config).to(torch.float32)
    )
    return torch.polar(torch.ones_like(angles), angles)[:, None]


def interleave(weight: Tensor, heads: int) -> Tensor:
    """Reorders the rows of a query or key projection, [heads * D, ...], so that rotated pairs are neighbours.

    Published weights rotate channel i with channel i + D/2; a complex number is two neighbours. Queries and keys are
    reordered alike, so their products are the same.
    """
    width = weight.shape[0] // heads
    return weight.view(heads, 2, width // 2, *weight.shape[1:]).transpose(1, 2).reshape(weight.shape)


def _stretched(plain: Tensor, scaling: RopeScaling) -> Tensor:
    """As published with Llama 3.1: slow frequencies are divided by the factor, fast ones kept, others in between."""
    wavelength = 2 * math.pi / plain
    turns = scaling.original_max_position_embeddings / wavelength
    span = scaling.high_freq_factor - scaling.low_freq_factor
    kept = ((turns - scaling.low_freq_factor) / span).clamp(0, 1)
    return kept * plain + (1 - kept) * plain / scaling.factor
