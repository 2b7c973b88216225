"""Published bundles and transformers folders become networks that compute the same; what does not fit is refused."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from vjepa2_files import OPTIONS, networks, published, write

from mstar_plan.errors import ConfigError, WeightsError
from mstar_plan.models.vjepa2.ac_predictor import ACPredictor
from mstar_plan.models.vjepa2.checkpoint import (
    load_encoder,
    load_masked_predictor,
    load_world_model,
    open_checkpoint,
    published_action,
)
from mstar_plan.models.vjepa2.config import AC_PREDICTORS, ENCODERS
from mstar_plan.models.vjepa2.encoder import VJEPA2Encoder
from mstar_plan.models.vjepa2.infer import LoadOptions, infer_encoder, infer_predictor

HF = Path(__file__).parents[2] / "golden" / "vjepa2_hf"


def equal(module: torch.nn.Module, other: torch.nn.Module) -> bool:
    one, two = module.state_dict(), other.state_dict()
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize("key", ["encoder", "target_encoder"])
@pytest.mark.parametrize("prefix", ["module.backbone.", "module.", "", "backbone.module."])
def test_a_bundle_comes_as_it_is(tmp_path, key, prefix):
    path = write(tmp_path / "b.pt", published(encoder_key=key, prefix=prefix))
    checkpoint = open_checkpoint(path, OPTIONS)
    encoder, predictor = networks()
    assert checkpoint.encoder == encoder.config
    assert checkpoint.predictor == predictor.config
    model = checkpoint.build_world_model()
    assert equal(model.encoder, encoder)
    assert equal(model.predictor, predictor)
    assert not any(each.requires_grad for each in model.parameters())
    report = checkpoint.report
    assert (report.kind, report.layout, report.dtype) == ("vjepa2_ac", "bundle", "float32")
    assert set(report.ignored) == {"opt", "epoch", "loss", f"{key}.{prefix}pos_embed"}
    count = sum(each.numel() for each in (*encoder.parameters(), *predictor.parameters()))
    assert (report.parameters, report.bytes) == (count, 4 * count)
    assert any("ignored: " in line for line in report.lines())


def test_encoder_goes_before_target_encoder(tmp_path):
    content = published()
    content["target_encoder"] = {name: tensor + 1 for name, tensor in content["encoder"].items()}
    path = write(tmp_path / "b.pt", content)
    assert equal(load_encoder(path, OPTIONS), networks()[0])
    assert "target_encoder" in open_checkpoint(path, OPTIONS).report.ignored


def test_the_masked_predictor_is_told_from_the_acting_one(tmp_path):
    path = write(tmp_path / "b.pth.tar", published(acting=False))
    assert open_checkpoint(path, OPTIONS).report.kind == "vjepa2"
    assert equal(load_masked_predictor(path, OPTIONS), networks(acting=False)[1])
    with pytest.raises(WeightsError, match=r"holds no world model"):
        load_world_model(path, OPTIONS)


def test_an_encoder_alone(tmp_path):
    path = write(tmp_path / "e.pt", dict(networks()[0].state_dict()))
    assert equal(load_encoder(path, OPTIONS), networks()[0])
    assert open_checkpoint(path, OPTIONS).report.kind == "encoder"
    with pytest.raises(WeightsError, match="holds no masked predictor"):
        load_masked_predictor(path, OPTIONS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_dtype_on_load(tmp_path, dtype):
    path = write(tmp_path / "b.pt", published())
    model = load_world_model(path, replace(OPTIONS, dtype=dtype))
    assert {each.dtype for each in model.state_dict().values()} == {dtype}
    kept = load_world_model(path, replace(OPTIONS, dtype=None))
    assert kept.dtype == torch.float32


@torch.inference_mode()
def test_the_transformers_folder(tmp_path):
    shutil.copy(HF / "weights.safetensors", tmp_path / "model.safetensors")
    config = json.loads((HF / "case.json").read_text())["config"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    io = load_file(HF / "io.safetensors")
    checkpoint = open_checkpoint(tmp_path)
    assert checkpoint.report.layout == "transformers"
    hidden = load_encoder(tmp_path)(io["in.pixel_values_videos"].transpose(1, 2))
    torch.testing.assert_close(hidden, io["out.last_hidden_state"], atol=1e-5, rtol=1e-4)
    everything = torch.arange(hidden.shape[1]).expand(2, -1)
    predicted = load_masked_predictor(tmp_path)(hidden, everything, everything)
    torch.testing.assert_close(predicted, io["out.predictor_default"], atol=1e-5, rtol=1e-4)


def test_transformers_shards_and_prefix(tmp_path):
    tensors = {f"vjepa2.{name}": tensor for name, tensor in load_file(HF / "weights.safetensors").items()}
    tensors["classifier.weight"] = torch.zeros(3, 40)
    names = sorted(tensors)
    table = {}
    for shard, chosen in (("a.safetensors", names[::2]), ("b.safetensors", names[1::2])):
        save_file({name: tensors[name] for name in chosen}, tmp_path / shard)
        table |= dict.fromkeys(chosen, shard)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": table}))
    (tmp_path / "config.json").write_text(json.dumps(json.loads((HF / "case.json").read_text())["config"]))
    assert equal(
        load_encoder(tmp_path),
        load_encoder(
            HF / "weights.safetensors", LoadOptions(num_heads=2, predictor_heads=2, img_size=32, num_frames=8)
        ),
    )
    assert open_checkpoint(tmp_path).report.ignored == ("classifier.weight",)
    index.write_text(json.dumps({"weight_map": {"x": "../a.safetensors"}}))
    with pytest.raises(WeightsError, match=r"\.\./a\.safetensors"):
        open_checkpoint(tmp_path)
    index.write_text(json.dumps({"weight_map": {**table, "x": "a.safetensors"}}))
    with pytest.raises(WeightsError, match="lack 1 of"):
        open_checkpoint(tmp_path)


def test_heads_that_shapes_do_not_tell_are_asked_for(tmp_path):
    path = write(tmp_path / "b.pt", published())
    with pytest.raises(WeightsError, match="num_heads="):
        open_checkpoint(path, replace(OPTIONS, num_heads=None))
    with pytest.raises(WeightsError, match="predictor_heads="):
        open_checkpoint(path, replace(OPTIONS, predictor_heads=None))
    with pytest.raises(ConfigError, match="num_heads 5 does not divide"):
        open_checkpoint(path, replace(OPTIONS, num_heads=5))
    with pytest.raises(ConfigError, match="img_size"):
        open_checkpoint(path, replace(OPTIONS, img_size=33))


def damage(content, change):
    encoder, predictor = content["encoder"], content["predictor"]
    first = "module.backbone.blocks.1.mlp.fc2.bias"
    match change:
        case "missing":
            del encoder[first], predictor["module.predictor_norm.bias"]
        case "misshaped":
            encoder[first] = torch.zeros(7)
        case "unexpected":
            encoder["module.backbone.cls_token"] = torch.zeros(1, 1, 24)
        case "NaN":
            encoder[first] = torch.full((24,), math.nan)
        case "gap":
            encoder["module.backbone.blocks.7.norm1.bias"] = encoder.pop("module.backbone.blocks.1.norm1.bias")
    return content


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("missing", r"2 missing: encoder\.blocks\.1\.mlp\.fc2\.bias, predictor\.predictor_norm\.bias"),
        ("misshaped", r"1 misshaped: encoder\.blocks\.1\.mlp\.fc2\.bias: \[7\], needed \[24\]"),
        ("unexpected", r"1 unexpected: encoder\.cls_token.*strict=false"),
        ("gap", r"missing.*unexpected: encoder\.blocks\.7"),
    ],
)
def test_what_does_not_fit_is_counted_and_named(tmp_path, change, said):
    path = write(tmp_path / "b.pt", damage(published(), change))
    with pytest.raises(WeightsError, match=said) as caught:
        open_checkpoint(path, OPTIONS)
    assert "nearest named configuration: tiny" in str(caught.value)


def test_unexpected_tensors_are_left_out_on_demand(tmp_path):
    path = write(tmp_path / "b.pt", damage(published(), "unexpected"))
    checkpoint = open_checkpoint(path, replace(OPTIONS, strict=False))
    assert checkpoint.report.unexpected == ("encoder.cls_token",)
    assert equal(checkpoint.build_encoder(), networks()[0])


def test_nan_is_refused(tmp_path):
    path = write(tmp_path / "b.pt", damage(published(), "NaN"))
    with pytest.raises(WeightsError, match=r"encoder\.blocks\.1\.mlp\.fc2\.bias holds NaN"):
        load_world_model(path, OPTIONS)


def test_what_a_dtype_cannot_hold_is_refused(tmp_path):
    content = published()
    content["encoder"]["module.backbone.norm.bias"] = torch.full((24,), 1e6)
    path = write(tmp_path / "b.pt", content)
    load_encoder(path, replace(OPTIONS, dtype=torch.bfloat16))
    with pytest.raises(WeightsError, match="float16"):
        load_encoder(path, replace(OPTIONS, dtype=torch.float16))


def test_another_architecture_is_named_as_such(tmp_path):
    path = write(tmp_path / "resnet.pt", {"conv1.weight": torch.zeros(8, 3, 7, 7), "layer1.0.bn1.bias": torch.zeros(8)})
    with pytest.raises(WeightsError, match=r"resnet\.pt: this is no V-JEPA 2 encoder.*nearest"):
        open_checkpoint(path)


def test_parts_of_two_models_are_refused(tmp_path):
    content = published()
    content["predictor"]["module.predictor_embed.weight"] = torch.zeros(16, 48)
    with pytest.raises(WeightsError, match="width 48, the encoder gives 24"):
        open_checkpoint(write(tmp_path / "b.pt", content), OPTIONS)


def test_the_published_sizes_are_told_from_shapes():
    """On tensors that take no room on disk: one number, expanded. Only opening is tried."""
    with torch.device("meta"):
        networks = {
            "encoder": VJEPA2Encoder(ENCODERS["vit_giant"]),
            "predictor": ACPredictor(AC_PREDICTORS["vit_ac_giant"]),
        }

    shapes = {part: {n: tuple(t.shape) for n, t in module.state_dict().items()} for part, module in networks.items()}
    encoder = infer_encoder(shapes["encoder"], LoadOptions())
    assert encoder == ENCODERS["vit_giant"]
    assert infer_predictor(shapes["predictor"], encoder, LoadOptions()) == AC_PREDICTORS["vit_ac_giant"]


def test_actions_of_the_published_model():
    action = published_action(7, 0.05)
    assert action.names == ("dx", "dy", "dz", "drx", "dry", "drz", "dgripper")
    assert action.units == ("m", "m", "m", "rad", "rad", "rad", "1")
    np.testing.assert_allclose(action.high, [0.05] * 3 + [np.pi] * 3 + [1], rtol=1e-6)
    np.testing.assert_allclose(action.low, -action.high)
    assert action.dt_s == 0.25
    with pytest.raises(WeightsError, match="width 5"):
        published_action(5, 0.05)
    with pytest.raises(ConfigError, match="max_translation_m"):
        LoadOptions(max_translation_m=math.inf)


def test_a_loaded_model_plans_as_the_one_it_was_saved_from(tmp_path):
    model = load_world_model(write(tmp_path / "b.pt", published()), OPTIONS)
    assert model.spec.image_size == (32, 32)
    assert model.spec.state_size == 7
    assert model.config.contract.frame_copies == 2
    assert model.spec.max_horizon == 2


@pytest.mark.parametrize("dtype", [torch.int64, torch.complex64])
def test_weights_that_are_no_floating_point_are_refused(tmp_path, dtype):
    content = published()
    content["encoder"]["module.backbone.norm.bias"] = torch.zeros(24, dtype=dtype)
    with pytest.raises(WeightsError, match=rf"encoder\.norm\.bias is {dtype}; weights are floating point"):
        load_encoder(write(tmp_path / "b.pt", content), OPTIONS)


def test_the_report_says_which_encoder_was_taken(tmp_path):
    content = published(encoder_key="target_encoder")
    report = open_checkpoint(write(tmp_path / "b.pt", content), OPTIONS).report
    assert "encoder taken from: target_encoder" in report.lines()
