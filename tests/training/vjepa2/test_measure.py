"""Held-out figures are those of what they are asked about."""

from __future__ import annotations

import numpy as np
import torch

from mstar_plan.models.vjepa2.ac_predictor import ACPredictor
from mstar_plan.training.vjepa2.measure import measure_encoder, rollout_errors
from mstar_plan.training.vjepa2.targets import TokenTargets
from mstar_plan.training.vjepa2.token_predictor import TokenEpisodes


def test_a_perfect_encoder_and_a_blind_one():
    latents = torch.randn(300, 3, generator=torch.Generator().manual_seed(0))
    targets = TokenTargets(latents, tokens=4, width=16)
    positions = latents[:, :2].numpy().astype(np.float64)
    good = measure_encoder(targets(latents), latents, positions, targets)
    assert good["latent_r2"] > 0.999
    assert min(good["probe_r2"]) > 0.9
    assert min(good["probe_r2_teacher"]) > 0.99
    assert good["rank_correlation"] > 0.5
    blind = measure_encoder(targets(latents.flip(0)), latents, positions, targets)
    assert blind["latent_r2"] < 0
    assert max(blind["probe_r2"]) < 0.5


def test_a_world_that_keeps_still(predictor_config):
    latents = torch.randn(20, 1, 3, generator=torch.Generator().manual_seed(0))
    targets = TokenTargets(latents.flatten(0, 1), tokens=4, width=24)
    tokens = targets(latents.expand(-1, 6, -1))
    errors = rollout_errors(ACPredictor(predictor_config), TokenEpisodes(tokens, torch.zeros(20, 5, 2)), targets, 5)
    assert errors["keep_still_l1"] == [0.0] * 5
    assert len(errors["rollout_l1"]) == len(errors["rollout_error"]) == 5
    assert min(errors["rollout_l1"]) > 0.1
