"""What tells whether a latent space is any good: rank, what can be read from it, rollout error, order of distances.

Shapes: E episodes, T steps, F = T+1 frames, D latent, H horizon, S samples, G task position.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.stats import spearmanr
from torch import Tensor

from mstar_plan.models.jepa import JepaMember

FloatMatrix = npt.NDArray[np.floating[Any]]


@torch.inference_mode()
def encode_frames(member: JepaMember, frames: npt.NDArray[np.uint8], *, batch: int = 512) -> Tensor:
    """Encodes [..., H_px, W_px, 3] uint8 to latents [..., D] with the BatchNorm's running statistics."""
    encoder = member.encoder.folded()
    device = encoder.position.device
    flat = torch.from_numpy(frames.reshape(-1, *frames.shape[-3:]))
    parts = [encoder(flat[i : i + batch].to(device)) for i in range(0, len(flat), batch)]
    return torch.cat(parts).view(*frames.shape[:-3], -1)


def effective_rank(z_SD: Tensor) -> float:
    """exp of the entropy of the normalised singular values of centred latents (Roy and Vetterli 2007); at most D."""
    values = torch.linalg.svdvals(z_SD - z_SD.mean(dim=0))
    shares = values / values.sum()
    return float(torch.exp(-(shares * torch.log(shares + 1e-12)).sum()))


def probe_r2(z_SD: FloatMatrix, y_SG: FloatMatrix, *, ridge: float = 1e-3) -> list[float]:
    """R2 of a ridge regression from latents to each of G values, fitted on the first half and scored on the second."""
    half = len(z_SD) // 2
    x = np.concatenate([z_SD, np.ones((len(z_SD), 1))], axis=1)
    gram = x[:half].T @ x[:half] + ridge * half * np.eye(x.shape[1])
    weights = np.linalg.solve(gram, x[:half].T @ y_SG[:half])
    residual = y_SG[half:] - x[half:] @ weights
    spread = y_SG[half:] - y_SG[half:].mean(axis=0)
    return [float(r) for r in 1.0 - residual.var(axis=0) / np.maximum(spread.var(axis=0), 1e-12)]


@torch.inference_mode()
def rollout_error(member: JepaMember, z_EFD: Tensor, a_ETA: Tensor, horizon: int) -> list[float]:
    """Error of own-fed predictions after 1..H steps as a share of the latents' variance; 1 is no better than the mean.

    Every start whose H steps lie in its episode counts.
    """
    steps = a_ETA.shape[1]
    variance = z_EFD.flatten(0, 1).var(dim=0).sum()
    predicted, errors = z_EFD[:, : steps + 1 - horizon], []
    starts = predicted.shape[1]
    for k in range(horizon):
        predicted = member.step(predicted, a_ETA[:, k : k + starts])
        squared = (predicted - z_EFD[:, k + 1 : k + 1 + starts]).square().sum(dim=-1)
        errors.append(float(squared.mean() / variance))
    return errors


def distance_rank_correlation(
    embed: Callable[[Tensor], Tensor], z_SD: Tensor, position_SG: FloatMatrix, *, pairs: int = 4000, seed: int = 0
) -> float:
    """Spearman correlation, over random pairs, of the embedded distance with that of the true task positions (m)."""
    rng = np.random.default_rng(seed)
    i, j = rng.integers(len(z_SD), size=(2, pairs))
    with torch.inference_mode():
        phi = embed(z_SD)
    learned = (phi[i] - phi[j]).norm(dim=-1).cpu().numpy()
    true = np.linalg.norm(position_SG[i] - position_SG[j], axis=-1)
    return float(spearmanr(learned, true).statistic)
