"""The published bundle from end to end: load it, encode frames one by one, predict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from mstar_plan.evaluation.golden.case import Comparison, GoldenCase, double_frames, sized
from mstar_plan.models.vjepa2.ac_predictor import ACPredictor
from mstar_plan.models.vjepa2.checkpoint import open_checkpoint
from mstar_plan.models.vjepa2.config import ACPredictorConfig, EncoderConfig
from mstar_plan.models.vjepa2.encoder import VJEPA2Encoder
from mstar_plan.models.vjepa2.infer import LoadOptions


def check_ac_checkpoint(case: GoldenCase) -> Iterator[Comparison]:
    """model.pt by `open_checkpoint`; heads and picture size, which no shape tells, from the configuration."""
    encoder_config = sized(EncoderConfig, case.config["encoder"])
    predictor_config = sized(ACPredictorConfig, case.config["predictor"])
    options = LoadOptions(
        img_size=encoder_config.img_size,
        num_frames=encoder_config.num_frames,
        num_heads=encoder_config.num_heads,
        predictor_heads=predictor_config.num_heads,
        layer_norm_eps=encoder_config.layer_norm_eps,
    )
    checkpoint = open_checkpoint(case.folder / "model.pt", options)
    encoder, predictor = checkpoint.build_encoder(), checkpoint.build_ac_predictor()
    raw = encode_frames(encoder, case.input("frames"))
    tokens = functional.layer_norm(raw, raw.shape[-1:])
    if case.has("mid.encoded_raw"):
        yield case.compare("mid.encoded_raw", raw.flatten(0, 1)[None])
    if case.has("out.encoded"):
        yield case.compare("out.encoded", tokens.flatten(0, 1)[None])
    if case.has("out.predicted"):
        actions, states = case.input("actions"), case.input("states")
        yield case.compare("out.predicted", predictor(tokens.flatten(0, 1)[None], actions, states))


def encode_frames(encoder: VJEPA2Encoder, frames: Tensor) -> Tensor:
    """Normalised frames [T, 3, H_px, W_px] to tokens [T, N, D], each encoded alone, before the layer norm."""
    tokens: Tensor = encoder(double_frames(frames, encoder.config.tubelet_size))
    return tokens


def build_pair(config: Mapping[str, Any], weights: Mapping[str, Tensor]) -> tuple[VJEPA2Encoder, ACPredictor]:
    """Encoder and predictor from encoder.NAME and predictor.NAME tensors."""
    encoder = VJEPA2Encoder(sized(EncoderConfig, config["encoder"]))
    predictor = ACPredictor(sized(ACPredictorConfig, config["predictor"]))
    parts: tuple[tuple[str, torch.nn.Module], ...] = (("encoder.", encoder), ("predictor.", predictor))
    for prefix, module in parts:
        module.load_state_dict({n.removeprefix(prefix): t for n, t in weights.items() if n.startswith(prefix)})
        module.eval().requires_grad_(False)
    return encoder, predictor
