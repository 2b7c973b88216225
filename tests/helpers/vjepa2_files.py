"""V-JEPA 2 files for tests, in the layouts that are published, made from networks of ours with random weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mstar_plan.models.vjepa2.ac_predictor import ACPredictor
from mstar_plan.models.vjepa2.config import ACPredictorConfig, EncoderConfig, MaskedPredictorConfig
from mstar_plan.models.vjepa2.encoder import VJEPA2Encoder
from mstar_plan.models.vjepa2.infer import LoadOptions
from mstar_plan.models.vjepa2.masked_predictor import VJEPA2MaskedPredictor

SIZE: dict[str, Any] = {"img_size": (32, 32), "patch_size": 8, "num_frames": 4, "embed_dim": 24, "depth": 2}
OPTIONS = LoadOptions(img_size=32, num_frames=4, num_heads=2, predictor_heads=4)


def networks(acting: bool = True) -> tuple[VJEPA2Encoder, ACPredictor | VJEPA2MaskedPredictor]:
    """Encoder and predictor, weights from seed 0."""
    torch.manual_seed(0)
    encoder = VJEPA2Encoder(EncoderConfig(**SIZE, num_heads=2, mlp_ratio=3.0))
    sizes: dict[str, Any] = {**SIZE, "predictor_embed_dim": 16, "num_heads": 4}
    predictor = (
        ACPredictor(ACPredictorConfig(**sizes))
        if acting
        else VJEPA2MaskedPredictor(MaskedPredictorConfig(**sizes, num_mask_tokens=3))
    )
    with torch.no_grad():
        for parameter in (*encoder.parameters(), *predictor.parameters()):
            parameter.add_(0.1 * torch.randn_like(parameter))
    return encoder.eval().requires_grad_(False), predictor.eval().requires_grad_(False)


def published(acting: bool = True, encoder_key: str = "encoder", prefix: str = "module.backbone.") -> dict[str, Any]:
    """A bundle as the published files are: prefixes, positions that nobody uses, bookkeeping."""
    encoder, predictor = networks(acting)
    state: dict[str, Tensor] = {prefix + name: tensor for name, tensor in encoder.state_dict().items()}
    state[f"{prefix}pos_embed"] = torch.zeros(1, 32, 24)
    return {
        encoder_key: state,
        "predictor": {f"module.{name}": tensor for name, tensor in predictor.state_dict().items()},
        "opt": {"state": {0: torch.zeros(3)}, "lr": 0.1},
        "epoch": 3,
        "loss": 0.5,
    }


def write(path: Path, content: Any) -> Path:
    """Saves with torch."""
    torch.save(content, path)
    return path
