"""Conversion: the written file loads by the registry and computes the same; it is written whole or not at all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from vjepa2_files import OPTIONS, networks, published, write
from vjepa2_worlds import picture

from mstar_plan.errors import WeightsError
from mstar_plan.models import weights
from mstar_plan.models.registry import load_model_file
from mstar_plan.models.vjepa2.checkpoint import load_encoder, load_masked_predictor, load_world_model
from mstar_plan.models.vjepa2.convert import add_self_test, convert
from mstar_plan.models.weights import add_evaluation, read_info

KEEP = replace(OPTIONS, dtype=None)


@torch.inference_mode()
def test_a_world_model_computes_the_same(tmp_path):
    source, target = write(tmp_path / "b.pt", published()), tmp_path / "deep" / "b.safetensors"
    report = convert(source, target, KEEP)
    assert report.kind == "vjepa2_ac"
    original = load_world_model(source, OPTIONS)
    for model in (load_model_file(target), load_world_model(target)):
        frames = torch.from_numpy(picture(0))[None]
        tokens = original.encode(frames)
        assert torch.equal(model.encode(frames), tokens)
        condition = torch.rand(1, 7)
        assert torch.equal(
            model.predict_once(tokens, condition, condition), original.predict_once(tokens, condition, condition)
        )
        assert model.config == original.config
        assert model.spec.action.names == original.spec.action.names
    info = read_info(target)
    assert info.training == {"converted_from": "b.pt", "layout": "bundle"}
    assert len(info.self_test["encoded"]) == 16


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_kept(tmp_path, dtype):
    source, target = write(tmp_path / "b.pt", published()), tmp_path / "b.safetensors"
    convert(source, target, replace(OPTIONS, dtype=dtype))
    assert target.stat().st_size < source.stat().st_size
    assert load_model_file(target, dtype=None).dtype == dtype
    assert load_model_file(target).dtype == torch.float32
    add_evaluation(target, {"success_rate": 0.5})
    assert load_model_file(target, dtype=None).dtype == dtype
    assert read_info(target).evaluation == {"success_rate": 0.5}


def test_encoder_and_masked_predictor(tmp_path):
    source, target = write(tmp_path / "b.pt", published(acting=False)), tmp_path / "b.safetensors"
    convert(source, target, KEEP)
    assert read_info(target).architecture == "vjepa2"
    encoder, predictor = networks(acting=False)
    assert load_encoder(target).config == encoder.config
    assert torch.equal(load_encoder(target).norm.weight, encoder.norm.weight)
    loaded = load_masked_predictor(target)
    assert loaded.config == predictor.config
    assert all(torch.equal(a, b) for a, b in zip(loaded.parameters(), predictor.parameters(), strict=True))


def test_an_encoder_alone(tmp_path):
    target = tmp_path / "e.safetensors"
    convert(write(tmp_path / "e.pt", dict(networks()[0].state_dict())), target, KEEP)
    assert load_encoder(target).config == networks()[0].config


def test_a_predictor_alone_is_no_world_model(tmp_path):
    source = write(tmp_path / "p.pt", {"predictor": published()["predictor"]})
    with pytest.raises(WeightsError, match="holds no encoder"):
        convert(source, tmp_path / "p.safetensors", KEEP)


def test_a_target_that_is_there_is_kept(tmp_path):
    source, target = write(tmp_path / "b.pt", published()), tmp_path / "b.safetensors"
    target.write_text("mine")
    with pytest.raises(WeightsError, match="force=true"):
        convert(source, target, KEEP)
    assert target.read_text() == "mine"
    convert(source, target, KEEP, force=True)
    load_model_file(target)
    with pytest.raises(WeightsError, match=r"end in \.safetensors"):
        convert(source, tmp_path / "b.pt2", KEEP)


def test_a_golden_vector_is_added_later(tmp_path):
    target = tmp_path / "b.safetensors"
    convert(write(tmp_path / "b.pt", published()), target, replace(KEEP, self_test=False))
    assert not read_info(target).self_test
    add_self_test(target)
    assert len(read_info(target).self_test["predicted"]) == 16
    load_model_file(target)


def test_nothing_is_left_of_what_fails(tmp_path, monkeypatch):
    def fail(_: object, path: Path, metadata: object) -> None:
        path.write_text("half")
        raise OSError("disk full")

    source, target = write(tmp_path / "b.pt", published()), tmp_path / "out" / "b.safetensors"
    monkeypatch.setattr(weights, "save_file", fail)
    with pytest.raises(WeightsError, match="disk full"):
        convert(source, target, KEEP)
    assert not list(target.parent.iterdir())
