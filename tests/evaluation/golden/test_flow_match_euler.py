"""The schedule's cases: runs of other settings, and settings that are not known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from mstar_plan.errors import ConfigError, WeightsError
from mstar_plan.evaluation.golden.check import check_folder
from mstar_plan.evaluation.golden.flow_match_euler import schedule_of


def write(folder: Path, runs: dict, io: dict) -> Path:
    folder.mkdir()
    text = {"case": "scheduler_flow_match_euler_b", "config": {"runs": runs, "num_train_timesteps": 100}}
    (folder / "case.json").write_text(json.dumps(text))
    save_file(io, folder / "io.safetensors")
    return folder


def test_runs_are_read_from_the_case(tmp_path: Path) -> None:
    """By hand: 100 training steps, two steps at sigmas 1 and 0.01, and a custom pair."""
    x, v = torch.tensor([[1.0, -1.0]]), torch.tensor([[[1.0, 2.0]], [[0.5, 0.5]]])
    first = x - 0.99 * v[0]
    io = {
        "in.x0": x, "in.v": v,
        "out.two.timesteps": torch.tensor([100.0, 1.0]), "out.two.sigmas": torch.tensor([1.0, 0.01, 0.0]),
        "out.two.samples": torch.stack([first, first - 0.01 * v[1]]),
        "out.own.sigmas": torch.tensor([0.8, 0.3, 0.0]),
    }  # fmt: skip
    runs = {"two": {"n": 2}, "own": {"sigmas": [0.8, 0.3]}}
    result = check_folder(write(tmp_path / "case", runs, io))
    assert result.ok, result
    assert len(result.comparisons) == 4
    io["out.own.sigmas"] = io["out.own.sigmas"] + 1e-3
    result = check_folder(write(tmp_path / "wrong", runs, io))
    assert [each.tensor for each in result.comparisons if not each.ok] == ["out.own.sigmas"]


@pytest.mark.parametrize(
    ("run", "error", "said"),
    [
        ({"n": 3, "stochastic_sampling": True}, WeightsError, "stochastic_sampling"),
        ({"n": 3, "use_dynamic_shifting": True}, ConfigError, "mu"),
        ({"n": 3, "sigmas": [1.0]}, ConfigError, "1 sigmas"),
    ],
)
def test_settings_that_are_not_computed_are_refused(run: dict, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        schedule_of({}, run)
