"""The SmolVLA check: it reads everything from the case, and notices a case that is wrong."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from vla_files import GOLDEN, change_json

from mstar_plan.evaluation.golden.check import check_folder


def copied(tmp_path: Path) -> Path:
    folder = tmp_path / "smolvla"
    shutil.copytree(GOLDEN / "smolvla", folder)
    return folder


def failing(folder: Path) -> set[str]:
    result = check_folder(folder)
    assert not result.failure
    return {each.tensor for each in result.comparisons if not each.ok}


def test_it_compares_every_tensor() -> None:
    result = check_folder(GOLDEN / "smolvla")
    assert result.ok
    assert len(result.comparisons) == 16
    assert result.unchecked == ()


@pytest.mark.parametrize(
    ("name", "value", "wrong"),
    [
        ("max_period", 2.0, "out.actions"),
        ("min_period", 0.01, "mid.velocity_step0"),
        ("num_steps", 5, "out.actions"),
        ("rtc", {"max_guidance_weight": 5.0, "execution_horizon": 2, "inference_delay": 1}, "out.rtc_ones.weights"),
        ("rtc", {"max_guidance_weight": 2.0, "execution_horizon": 3, "inference_delay": 1}, "out.rtc_exp.actions"),
        ("rtc", {"max_guidance_weight": 5.0, "execution_horizon": 3, "inference_delay": 2}, "out.rtc_zeros.actions"),
    ],
)
def test_settings_come_from_the_case(tmp_path: Path, name: str, value: object, wrong: str) -> None:
    folder = copied(tmp_path)
    config = json.loads((folder / "case.json").read_text())["config"]
    change_json(folder / "case.json", config=config | {name: value})
    assert wrong in failing(folder)


@pytest.mark.parametrize("name", ["in.state", "in.image1", "in.noise", "in.tokens"])
def test_inputs_come_from_the_case(tmp_path: Path, name: str) -> None:
    folder = copied(tmp_path)
    io = load_file(folder / "io.safetensors")
    io[name] = io[name].flip(0).contiguous()
    save_file(io, folder / "io.safetensors")
    assert "out.actions" in failing(folder)


def test_layers_that_do_not_fit_the_weights_are_told(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    config = json.loads((folder / "case.json").read_text())["config"]
    change_json(folder / "case.json", config=config | {"self_attn_every_n_layers": 3})
    assert "do not belong together" in check_folder(folder).failure


def test_wrapped_weights_and_more_cameras(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    weights = load_file(folder / "weights.safetensors")
    save_file({f"model.{name}": tensor for name, tensor in weights.items()}, folder / "weights.safetensors")
    io = load_file(folder / "io.safetensors")
    io = {name: tensor for name, tensor in io.items() if not name.startswith("mid.prefix")}
    io |= {"in.image2": torch.zeros_like(io["in.image0"]), "in.img_mask2": torch.zeros(2, dtype=torch.bool)}
    save_file(io, folder / "io.safetensors")
    assert check_folder(folder).ok  # a camera that is not there changes nothing
