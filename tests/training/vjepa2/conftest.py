"""A V-JEPA 2-AC for the 32 x 32 frames of the toy world."""

from __future__ import annotations

import pytest
import torch

from mstar_plan.models.vjepa2.ac_predictor import ACPredictor
from mstar_plan.models.vjepa2.config import ACPredictorConfig, EncoderConfig
from mstar_plan.models.vjepa2.contract import ModelContract
from mstar_plan.models.vjepa2.encoder import VJEPA2Encoder
from mstar_plan.models.vjepa2.world_model import VJEPA2AC, VJEPA2ACConfig
from mstar_plan.training.shards import Episodes


@pytest.fixture
def encoder_config() -> EncoderConfig:
    return EncoderConfig(img_size=(32, 32), patch_size=16, num_frames=2, embed_dim=24, depth=2, num_heads=2)


@pytest.fixture
def predictor_config() -> ACPredictorConfig:
    return ACPredictorConfig(
        img_size=(32, 32),
        patch_size=16,
        num_frames=24,
        embed_dim=24,
        predictor_embed_dim=24,
        depth=1,
        num_heads=2,
        action_embed_dim=2,
    )


@pytest.fixture
def small_ac(encoder_config: EncoderConfig, predictor_config: ACPredictorConfig, episodes: Episodes) -> VJEPA2AC:
    """The untrained model."""
    torch.manual_seed(0)
    config = VJEPA2ACConfig(encoder_config, predictor_config, ModelContract(state="none"))
    parts = VJEPA2Encoder(encoder_config), ACPredictor(predictor_config)
    return VJEPA2AC("toy", config, episodes.action, *parts)
