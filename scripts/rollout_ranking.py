"""How well cheaper rollouts rank candidates, on the trained small V-JEPA 2-AC; for bench_rollout.py.

For each: the rank correlation (Spearman) of its energies with the exact ones, and how many of the ten best candidates
are among its 32 best of 256. A screen that sends 32 on to exact rollouts loses the others.

- bfloat16: the same rollout in half precision.
- shallow: the first half of the predictor's blocks.
- linear: a first-order model of the predictor around the mean of the candidates, by differences (H A + 1 rollouts).
"""

from __future__ import annotations

import copy
import statistics
from typing import Any

import numpy as np
import torch
from rollout_search import MODELS, starts
from scipy.stats import spearmanr
from torch import Tensor

from mstar_plan.models.registry import load_model
from mstar_plan.models.vjepa2.world_model import VJEPA2AC
from mstar_plan.types import PlanRequest

CANDIDATES, BEST, SCREENED = 256, 10, 32
STEP = 0.1  # of the differences


def rolled_out(model: VJEPA2AC, request: PlanRequest, actions: Tensor) -> tuple[Tensor, Tensor]:
    """Last predicted tokens [K, N D] of actions [K, H, A], and the goal's [1, N D]."""
    frames = torch.from_numpy(np.stack([request.observation.frames[0], request.goal.frame]))
    latents = model.encode(frames)
    z, state, cache = model.begin(latents[:1, None], None, None, *actions.shape[:2])
    for h in range(actions.shape[1]):
        z, state, cache = model.predict(z, state, actions[None, :, h], cache)
    return model.embed(z[0]), model.embed(latents[1:])


def energies(model: VJEPA2AC, request: PlanRequest, actions: Tensor) -> Tensor:
    """Energies [K]."""
    reached, goal = rolled_out(model, request, actions)
    return (reached - goal).abs().mean(1)


def linear_energies(model: VJEPA2AC, request: PlanRequest, actions: Tensor) -> Tensor:
    """Energies [K] by a first-order model around the candidates' mean."""
    mean = actions.mean(0)
    probes = torch.eye(mean.numel()).view(-1, *mean.shape) * STEP
    reached, goal = rolled_out(model, request, torch.cat([mean[None], mean + probes]))
    slopes = (reached[1:] - reached[:1]) / STEP
    return (reached[:1] + (actions - mean).flatten(1) @ slopes - goal).abs().mean(1)


def shallow_energies(model: VJEPA2AC, request: PlanRequest, actions: Tensor) -> Tensor:
    """Energies [K] through half of the blocks."""
    rollout = model._rollout()
    blocks = rollout.blocks
    try:
        rollout.blocks = blocks[: len(blocks) // 2]
        return energies(model, request, actions)
    finally:
        rollout.blocks = blocks


def agreement(exact: Tensor, cheap: Tensor) -> tuple[float, float]:
    """Rank correlation, and the share of the best that a screen keeps."""
    best = set(exact.topk(BEST, largest=False).indices.tolist())
    kept = set(cheap.topk(SCREENED, largest=False).indices.tolist())
    return float(spearmanr(exact.numpy(), cheap.numpy()).statistic), len(best & kept) / BEST


@torch.inference_mode()
def measure(count: int = 10) -> list[dict[str, Any]]:
    """Every way, horizon and spread of the candidates, on the first trained model."""
    name = next(iter(MODELS))
    model = load_model(name)
    assert isinstance(model, VJEPA2AC)
    half = copy.deepcopy(model).to(torch.bfloat16)
    ways = {
        "bfloat16": lambda r, a: energies(half, r, a),
        "shallow": lambda r, a: shallow_energies(model, r, a),
        "linear": lambda r, a: linear_energies(model, r, a),
    }
    requests = starts(MODELS[name], count)
    rows = []
    for horizon in (2, 8):
        for spread in (0.6, 0.2):
            generator = torch.Generator().manual_seed(0)
            found: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
            for request in requests:
                mean = torch.rand(horizon, 2, generator=generator) - 0.5
                noise = torch.randn(CANDIDATES, horizon, 2, generator=generator)
                actions = (mean + spread * noise).clamp(-1, 1)
                exact = energies(model, request, actions)
                for way, run in ways.items():
                    found[way].append(agreement(exact, run(request, actions)))
            for way, pairs in found.items():
                ranks, kept = (round(statistics.mean(each), 3) for each in zip(*pairs, strict=True))
                rows.append(
                    {"model": name, "way": way, "H": horizon, "spread": spread, "spearman": ranks, "best_kept": kept}
                )
                print("ranking", rows[-1], flush=True)
    return rows
