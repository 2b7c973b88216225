"""Sizes from shapes: those of every named network come back, others as far as shapes tell."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from mstar_plan.errors import ConfigError, WeightsError
from mstar_plan.models.vjepa2.ac_predictor import ACPredictor
from mstar_plan.models.vjepa2.config import AC_PREDICTORS, ENCODERS, EncoderConfig, MaskedPredictorConfig
from mstar_plan.models.vjepa2.encoder import VJEPA2Encoder
from mstar_plan.models.vjepa2.infer import LoadOptions, guess_nearest, infer_encoder, infer_predictor, nearest
from mstar_plan.models.vjepa2.masked_predictor import VJEPA2MaskedPredictor


def shapes(kind, config) -> dict[str, tuple[int, ...]]:
    with torch.device("meta"):
        return {name: tuple(tensor.shape) for name, tensor in kind(config).state_dict().items()}


@pytest.mark.parametrize("name", ENCODERS)
def test_named_encoders(name):
    config = ENCODERS[name]
    found = infer_encoder(shapes(VJEPA2Encoder, config), LoadOptions())
    if name == "vit_giant_384":  # the same shapes; the pictures' size has to be said
        assert found == ENCODERS["vit_giant"]
        found = infer_encoder(shapes(VJEPA2Encoder, config), LoadOptions(img_size=384))
    assert found == config


@pytest.mark.parametrize("name", AC_PREDICTORS)
def test_named_acting_predictors(name):
    config = AC_PREDICTORS[name]
    encoder = {"tiny": "tiny", "mini": "mini", "vit_ac_giant": "vit_giant"}[name]
    found = infer_predictor(shapes(ACPredictor, config), ENCODERS[encoder], LoadOptions())
    assert found == replace(config, num_frames=ENCODERS[encoder].num_frames)


def test_the_published_masked_predictor():
    config = MaskedPredictorConfig(embed_dim=1280)
    found = infer_predictor(shapes(VJEPA2MaskedPredictor, config), ENCODERS["vit_huge"], LoadOptions())
    assert found == config
    alone = infer_predictor(shapes(VJEPA2MaskedPredictor, config), None, LoadOptions())
    assert alone == config


def test_other_widths_have_heads_of_64_channels_and_every_mlp_row():
    for ratio in (48 / 11, 4.0, 8 / 3, 2.1):
        config = EncoderConfig(embed_dim=704, depth=3, num_heads=11, mlp_ratio=ratio)
        table = shapes(VJEPA2Encoder, config)
        found = infer_encoder(table, LoadOptions())
        assert found.num_heads == 11
        assert shapes(VJEPA2Encoder, found) == table
    still = EncoderConfig(embed_dim=128, depth=1, num_heads=2, num_frames=1, patch_size=14, img_size=(224, 224))
    assert infer_encoder(shapes(VJEPA2Encoder, still), LoadOptions(img_size=224)) == still


def test_said_sizes_go_before_named_ones_and_given_ones_before_both():
    table = shapes(VJEPA2Encoder, ENCODERS["vit_large"])
    said = {"crop_size": 384, "frames_per_clip": 32, "num_attention_heads": 8, "layer_norm_eps": 1e-5}
    found = infer_encoder(table, LoadOptions(), said)
    assert (found.img_size, found.num_frames, found.num_heads, found.layer_norm_eps) == ((384, 384), 32, 8, 1e-5)
    found = infer_encoder(table, LoadOptions(img_size=(128, 256), num_heads=4), said)
    assert (found.img_size, found.num_frames, found.num_heads) == ((128, 256), 32, 4)


@pytest.mark.parametrize("name", ["num_frames", "num_heads", "predictor_heads", "patch_size", "context_frames"])
def test_options_need_to_be_above_zero(name):
    with pytest.raises(ConfigError, match=name):
        LoadOptions(**{name: 0})
    with pytest.raises(ConfigError, match="dtype"):
        LoadOptions(dtype=torch.int8)


def test_what_is_no_v_jepa_2():
    with pytest.raises(WeightsError, match=r"no V-JEPA 2 encoder.*patch_embed"):
        infer_encoder({"conv1.weight": (64, 3, 7, 7)}, LoadOptions())
    with pytest.raises(WeightsError, match=r"no V-JEPA 2 predictor"):
        infer_predictor({"head.weight": (3, 3)}, None, LoadOptions())
    table = shapes(VJEPA2MaskedPredictor, MaskedPredictorConfig())
    with pytest.raises(WeightsError, match=r"mask_tokens\.0 or action_encoder"):
        infer_predictor({n: s for n, s in table.items() if "mask_tokens" not in n}, None, LoadOptions())


def test_the_nearest_named_configuration():
    assert nearest(ENCODERS, 1408, 40) == "vit_giant"
    assert nearest(ENCODERS, 1300, 30) == "vit_huge"
    assert guess_nearest({f"blocks.{i}.norm1.weight": (1024,) for i in range(24)}) == "vit_large"
    assert guess_nearest({}) in ENCODERS


def test_config_json_of_wrong_types_is_refused():
    table = shapes(VJEPA2Encoder, ENCODERS["tiny"])
    for name, value in (("num_attention_heads", "two"), ("crop_size", True), ("frames_per_clip", 1.5)):
        with pytest.raises(WeightsError, match=f"config.json says {name} is"):
            infer_encoder(table, LoadOptions(), {name: value})
    with pytest.raises(WeightsError, match="hidden_act is 'relu'"):
        infer_encoder(table, LoadOptions(), {"hidden_act": "relu"})


def test_a_bias_that_one_block_lacks_does_not_make_the_others_unexpected():
    table = shapes(VJEPA2Encoder, ENCODERS["tiny"])
    del table["blocks.0.attn.qkv.bias"]
    assert infer_encoder(table, LoadOptions()).qkv_bias
