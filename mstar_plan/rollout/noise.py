"""Search noise as a function of (seed, iteration, candidate index) alone, white or correlated over the horizon.

Shapes: B requests, K candidates, H horizon, A action.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from mstar_plan.errors import ConfigError


@dataclass(frozen=True)
class NoiseConfig:
    """How the noise of one candidate is correlated over its horizon. Every action has unit variance.

    Attributes:
        colour: "white" (independent), "ar1" (memory `rho`) or "power" (spectrum f ** -beta).
        rho: Correlation of successive actions for "ar1", 0 <= rho < 1.
        beta: Exponent of the power spectrum for "power"; 0 is white, 1 pink, 2 red.
    """

    colour: Literal["white", "ar1", "power"] = "ar1"
    rho: float = 0.8
    beta: float = 2.0

    def __post_init__(self) -> None:
        if self.colour not in ("white", "ar1", "power"):
            raise ConfigError(f"noise.colour is {self.colour!r}; use white, ar1 or power", field="colour")
        if not 0 <= self.rho < 1:
            raise ConfigError(f"noise.rho is {self.rho}; it needs 0 <= rho < 1", field="rho")
        if not 0 <= self.beta <= 4:
            raise ConfigError(f"noise.beta is {self.beta}; it needs 0 <= beta <= 4", field="beta")


def white_noise(seed: int, iteration: int, shape: tuple[int, int, int]) -> Tensor:
    """Standard normal noise [K, A, H] float32 of one request, `shape` being (K, A, H).

    Counter-based (Philox, Salmon et al. 2011) with (seed, iteration) as its key: no generator is shared, and the first
    k candidates are the same whatever K is.
    """
    key = np.array([seed, iteration], dtype=np.uint64)
    generator = np.random.Generator(np.random.Philox(key=key))
    return torch.from_numpy(generator.standard_normal(shape, dtype=np.float32))


@functools.lru_cache(maxsize=256)
def colouring(config: NoiseConfig, horizon: int) -> Tensor | None:
    """The matrix [H, H] float32 that turns white noise (as rows [..., H]) into coloured: `white @ matrix`.

    For "ar1": n_0 = e_0 and n_h = rho n_(h-1) + sqrt(1 - rho^2) e_h, unrolled. For "power": the spectrum of white noise
    is scaled by f ** (-beta / 2) (Timmer and Koenig 1995; iCEM, Pinneri et al. 2020), its constant part like the lowest
    frequency; this filter is linear and circular, so that every action keeps the same variance.

    Returns:
        The matrix, or None where the noise stays white.
    """
    if config.colour == "ar1" and config.rho > 0 and horizon > 1:
        lag = np.arange(horizon)[:, None] - np.arange(horizon)[None, :]
        lower = np.where(lag >= 0, config.rho ** np.maximum(lag, 0.0), 0.0)
        lower[:, 1:] *= np.sqrt(1 - config.rho**2)
        matrix = lower.T
    elif config.colour == "power" and config.beta > 0 and horizon > 1:
        frequency = np.fft.rfftfreq(horizon)
        frequency[0] = frequency[1]
        scale = frequency ** (-config.beta / 2)
        matrix = np.fft.irfft(np.fft.rfft(np.eye(horizon), axis=1) * scale, n=horizon, axis=1)
        matrix /= np.linalg.norm(matrix, axis=0, keepdims=True)
    else:
        return None
    return torch.from_numpy(np.ascontiguousarray(matrix, dtype=np.float32))


def draw_noise(config: NoiseConfig, seed: Tensor, iteration: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """Noise [B, K, H, A] float32 on the device of `seed`.

    A row is drawn and coloured by itself, so that it is the same bytes whoever shares the batch.

    Args:
        config: Correlation over the horizon.
        seed: [B] int64, one a request.
        iteration: [B] int64, where each request's search stands.
        shape: (K, H, A).
    """
    samples, horizon, size = shape
    matrix = colouring(config, horizon)
    rows = []
    for s, i in zip(seed.tolist(), iteration.tolist(), strict=True):
        row = white_noise(s, i, (samples, size, horizon))
        rows.append(row if matrix is None else row @ matrix)
    noise = rows[0][None] if len(rows) == 1 else torch.stack(rows)
    return noise.transpose(2, 3).to(seed.device)
