"""Names of tensors from other layouts."""

from __future__ import annotations

import pytest
import torch

from mstar_plan.errors import WeightsError
from mstar_plan.models.vjepa2.key_maps import Stored, split_parts, without_prefixes


def stored(*shape: int, value: float = 0.0) -> Stored:
    return Stored(shape, torch.float32, lambda: torch.full(shape, value))


@pytest.mark.parametrize("name", ["module.backbone.norm.bias", "backbone.norm.bias", "norm.bias", "module.norm.bias"])
def test_prefixes_go_wherever_they_are(name):
    assert without_prefixes(name) == "norm.bias"


def test_flat_files_are_sorted_into_parts():
    names = ["norm.bias", "predictor_norm.bias", "mask_tokens.0", "action_encoder.bias", "encoder.blocks.0.norm1.bias"]
    parts, ignored = split_parts({name: stored(2) for name in (*names, "pos_embed", "module.predictor_pos_embed")})
    assert set(parts["encoder"]) == {"norm.bias", "blocks.0.norm1.bias"}
    assert set(parts["predictor"]) == {"predictor_norm.bias", "mask_tokens.0", "action_encoder.bias"}
    assert ignored == ["pos_embed", "module.predictor_pos_embed"]


def test_two_tensors_of_one_name_are_refused():
    with pytest.raises(WeightsError, match=r"norm\.bias"):
        split_parts({"norm.bias": stored(2), "module.norm.bias": stored(2)})


def transformers_names(*changed: str) -> dict[str, Stored]:
    layer = "encoder.layer.0.attention"
    tensors = {
        "encoder.embeddings.patch_embeddings.proj.weight": stored(4, 3, 2, 8, 8),
        **{f"{layer}.{each}.weight": stored(4, 4, value=i) for i, each in enumerate(("query", "key", "value"))},
        f"{layer}.proj.weight": stored(4, 4),
        "encoder.layernorm.bias": stored(4),
        "predictor.embeddings.mask_tokens": stored(3, 1, 1, 6, value=7),
        "predictor.proj.bias": stored(4),
    }
    return {name: tensor for name, tensor in tensors.items() if name not in changed}


def test_transformers_names_become_ours():
    parts, _ = split_parts(transformers_names())
    assert set(parts["encoder"]) == {
        "patch_embed.proj.weight",
        "blocks.0.attn.qkv.weight",
        "blocks.0.attn.proj.weight",
        "norm.bias",
    }
    fused = parts["encoder"]["blocks.0.attn.qkv.weight"]
    assert fused.shape == (12, 4)
    assert fused.read()[::4, 0].tolist() == [0, 1, 2]  # query, key, value
    assert set(parts["predictor"]) == {"mask_tokens.0", "mask_tokens.1", "mask_tokens.2", "predictor_proj.bias"}
    token = parts["predictor"]["mask_tokens.2"]
    assert token.shape == tuple(token.read().shape) == (1, 1, 6)


def test_an_incomplete_attention_stays_for_the_report():
    parts, _ = split_parts(transformers_names("encoder.layer.0.attention.key.weight"))
    assert "blocks.0.attn.qkv.weight" not in parts["encoder"]
    assert "blocks.0.attention.query.weight" in parts["encoder"]
