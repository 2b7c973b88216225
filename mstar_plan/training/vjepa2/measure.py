"""Held-out figures of a small V-JEPA 2-AC: how well the encoder says the teacher's latent, how far rollouts stray.

Shapes: B windows, H steps, N tokens, D width, S frames, Z width of the teacher's latent.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from mstar_plan.models.vjepa2.ac_predictor import ACPredictor
from mstar_plan.training.diagnostics import distance_rank_correlation, effective_rank, probe_r2
from mstar_plan.training.vjepa2.targets import TokenTargets
from mstar_plan.training.vjepa2.token_predictor import TokenEpisodes, roll

WINDOWS = 256  # held-out rollouts that are measured on


def measure_encoder(
    tokens: Tensor, latents: Tensor, positions: np.ndarray[Any, Any], targets: TokenTargets
) -> dict[str, Any]:
    """Figures of the tokens [S, N, D] of held-out frames, whose latents [S, Z] and positions [S, 2] (m) are known."""
    error = (targets.read(tokens) - latents).square().sum()
    spread = (latents - latents.mean(0)).square().sum()
    flat = tokens.flatten(1)
    return {
        "latent_r2": round(float(1 - error / spread), 5),
        "probe_r2": [round(r, 4) for r in probe_r2(flat.numpy(), positions)],
        "probe_r2_teacher": [round(r, 4) for r in probe_r2(latents.numpy(), positions)],
        "effective_rank": round(effective_rank(flat), 2),
        "rank_correlation": round(distance_rank_correlation(lambda z: z, flat, positions), 3),
    }


@torch.inference_mode()
def rollout_errors(
    predictor: ACPredictor, data: TokenEpisodes, targets: TokenTargets, steps: int, *, seed: int = 7
) -> dict[str, list[float]]:
    """Errors of own-fed rollouts after each of H steps.

    Returns:
        "rollout_l1": of the tokens, the loss that is trained. "keep_still_l1": that of predicting that nothing moves.
        "rollout_error": squared error of the latents that the tokens say, as a share of the latents' variance.
    """
    tokens, actions = data.windows(torch.Generator().manual_seed(seed), WINDOWS, steps)
    predicted, true = roll(predictor, tokens[:, 0], actions), tokens[:, 1:]
    latents = targets.read(true)
    squared = (targets.read(predicted) - latents).square().sum(-1).mean(0)
    return {
        "rollout_l1": _rounded((predicted - true).abs().mean((0, 2, 3))),
        "keep_still_l1": _rounded((tokens[:, :1] - true).abs().mean((0, 2, 3))),
        "rollout_error": _rounded(squared / latents.flatten(0, 1).var(0).sum()),
    }


def _rounded(values: Tensor) -> list[float]:
    return [round(float(value), 5) for value in values]
