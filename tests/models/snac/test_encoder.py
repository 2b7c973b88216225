"""The encoder: its rate, for even and odd steps."""

from __future__ import annotations

import pytest
import torch
from toy_speech import KINDS

from mstar_plan.models.snac.config import SnacConfig
from mstar_plan.models.snac.encoder import Encoder

ODD = SnacConfig(encoder_dim=2, encoder_rates=(3, 5), decoder_dim=4, decoder_rates=(5, 3))


@pytest.mark.parametrize("config", [*KINDS.values(), ODD], ids=[*KINDS, "odd"])
@torch.inference_mode()
def test_one_latent_step_a_hop(config: SnacConfig) -> None:
    steps = config.granule * 2
    latents = Encoder(config)(torch.randn(2, 1, steps * config.hop_length))
    assert latents.shape == (2, config.width, steps)
    assert latents.std() > 0
