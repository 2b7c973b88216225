"""V-JEPA 2-AC at a size for tests, with random weights."""

from __future__ import annotations

import numpy as np
import torch

from mstar_plan.models.vjepa2.ac_predictor import ACPredictor
from mstar_plan.models.vjepa2.config import ACPredictorConfig, EncoderConfig
from mstar_plan.models.vjepa2.contract import ModelContract
from mstar_plan.models.vjepa2.encoder import VJEPA2Encoder
from mstar_plan.models.vjepa2.world_model import VJEPA2AC, VJEPA2ACConfig
from mstar_plan.types import ActionSpec, Goal, ImageArray, Observation, PlanRequest

HIGH = np.array([0.075, 0.075, 0.075, 3.0, 3.0, 3.0, 1.0], np.float32)


def small_world(context_frames: int = 1, state: str = "pose") -> VJEPA2AC:
    """A model on pictures of 32 x 32 with 16 tokens; weights from seed 0."""
    torch.manual_seed(0)
    size = {"img_size": (32, 32), "patch_size": 8, "embed_dim": 24, "num_heads": 2, "depth": 2}
    config = VJEPA2ACConfig(
        EncoderConfig(**size, num_frames=2),
        ACPredictorConfig(**size, num_frames=16, predictor_embed_dim=32),
        ModelContract(state=state),  # type: ignore[arg-type]
        context_frames,
    )
    encoder, predictor = VJEPA2Encoder(config.encoder), ACPredictor(config.predictor)
    with torch.no_grad():
        for parameter in (*encoder.parameters(), *predictor.parameters()):
            parameter.add_(0.1 * torch.randn_like(parameter))
    model = VJEPA2AC("small", config, ActionSpec(-HIGH, HIGH, 0.25), encoder, predictor)
    return model.eval().requires_grad_(False)


def picture(seed: int) -> ImageArray:
    """Noise [32, 32, 3]."""
    return np.random.default_rng(seed).integers(0, 256, (32, 32, 3), dtype=np.uint8)


def small_request(seed: int = 0, frames: int = 1) -> PlanRequest:
    """From one picture of noise to another."""
    pose = np.array([0.4, 0.1, 0.3, 0.1, -0.2, 0.3, 0.5], np.float32)
    seen = np.stack([picture(10 * seed + i) for i in range(frames)])
    actions = None if frames == 1 else np.full((frames - 1, 7), 0.02, np.float32)
    return PlanRequest(
        Observation(seen, state=pose), Goal(frame=picture(10 * seed + 9)), seed=seed, context_actions=actions
    )
