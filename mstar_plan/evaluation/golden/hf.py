"""Encoder and masked predictor under the names and conventions of transformers' VJEPA2Model."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from mstar_plan.evaluation.golden.case import Comparison, GoldenCase
from mstar_plan.models.vjepa2.checkpoint import open_checkpoint
from mstar_plan.models.vjepa2.infer import LoadOptions

MASK_INDEX = 1


def check_hf(case: GoldenCase) -> Iterator[Comparison]:
    """Loads by the transformers layout; default masks show every token to the predictor and ask for every token."""
    config = case.config
    options = LoadOptions(
        img_size=config["crop_size"],
        num_frames=config["frames_per_clip"],
        num_heads=config["num_attention_heads"],
        predictor_heads=config["pred_num_attention_heads"],
        layer_norm_eps=config.get("layer_norm_eps"),
    )
    checkpoint = open_checkpoint(case.folder / "weights.safetensors", options)
    encoder = checkpoint.build_encoder()
    hidden = encoder(case.input("pixel_values_videos").transpose(1, 2))
    everything = torch.arange(hidden.shape[1]).expand(hidden.shape[0], -1)
    ours = {"out.last_hidden_state": hidden}
    if case.has("in.context_mask"):
        ours["out.masked_context_hidden"] = _kept(hidden, case.input("context_mask"))
    if case.has("in.target_mask"):
        ours["out.masked_target_hidden"] = _kept(hidden, case.input("target_mask"))
    if checkpoint.predictor is not None:
        predictor = checkpoint.build_masked_predictor()
        ours["out.predictor_default"] = predictor(hidden, everything, everything, MASK_INDEX)
        if case.has("in.context_mask", "in.target_mask"):
            context, target = case.input("context_mask"), case.input("target_mask")
            ours["out.predictor_masked"] = predictor(_kept(hidden, context), context, target, MASK_INDEX)
    for name, tensor in ours.items():
        if case.has(name):
            yield case.compare(name, tensor)


def _kept(hidden: Tensor, ids: Tensor) -> Tensor:
    return hidden.gather(1, ids[..., None].expand(-1, -1, hidden.shape[-1]))
