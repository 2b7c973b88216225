"""The preprocessing check: it compares everything that the case holds, and notices what is wrong."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from vla_files import GOLDEN, change_json

from mstar_plan.evaluation.golden.check import check_folder


def test_it_compares_every_tensor_and_the_prompts() -> None:
    result = check_folder(GOLDEN / "vla_preprocess")
    assert result.ok
    assert len(result.comparisons) == 23
    assert result.unchecked == ()


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("out.pi.uint8_0_28", 2),
        ("out.pi.float_1_32", 1e-4),
        ("out.smolvla.float_2_28", 1e-4),
        ("out.state_bins", 1),
        ("out.quantile", 1e-3),
        ("out.quantile_inverse", 1e-3),
        ("out.mean_std", 1e-3),
    ],
)
def test_a_wrong_value_fails(tmp_path: Path, name: str, change: float) -> None:
    folder = tmp_path / "vla_preprocess"
    shutil.copytree(GOLDEN / "vla_preprocess", folder)
    io = load_file(folder / "io.safetensors")
    io[name] = torch.where(io[name] < 100, io[name] + change, io[name] - change).to(io[name].dtype)
    save_file(io, folder / "io.safetensors")
    assert name in {each.tensor for each in check_folder(folder).comparisons if not each.ok}


def test_a_wrong_prompt_fails(tmp_path: Path) -> None:
    folder = tmp_path / "vla_preprocess"
    shutil.copytree(GOLDEN / "vla_preprocess", folder)
    config = json.loads((folder / "case.json").read_text())["config"]
    config["expected_prompts"][1] += " "
    change_json(folder / "case.json", config=config)
    wrong = [each for each in check_folder(folder).comparisons if not each.ok]
    assert [each.tensor for each in wrong] == ["config.expected_prompts"]
