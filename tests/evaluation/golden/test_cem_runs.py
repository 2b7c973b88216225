"""Runs of the published planner: elites that only rounding tells apart, and elites that are wrong."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from mstar_plan.evaluation.golden.case import CaseResult, load_case
from mstar_plan.evaluation.golden.cem_runs import fed_noise, make_scene, run_config, search, settle
from mstar_plan.evaluation.golden.check import check_folder
from mstar_plan.rollout.noise import NoiseConfig
from mstar_plan.rollout.planner import best_first

CASE = Path(__file__).parents[2] / "golden" / "vjepa2_ac_cem"
ENERGIES = torch.tensor([[0.5, 0.3, 0.300004, 0.1, 0.7, 0.299998]])  # three of them tie for the second place


@pytest.mark.parametrize("stored", [[3, 1], [3, 2], [5, 3]])
def test_stored_elites_are_followed_where_they_tie(stored: list[int]) -> None:
    settled = settle(ENERGIES, torch.tensor(stored), 1e-5)
    assert sorted(best_first(settled, 2)[0].tolist()) == sorted(stored)


@pytest.mark.parametrize("stored", [[3, 0], [1, 5], [4, 2]])
def test_stored_elites_that_are_worse_are_not_followed(stored: list[int]) -> None:
    assert settle(ENERGIES, torch.tensor(stored), 1e-5) is ENERGIES


def test_without_slack_the_order_is_strict() -> None:
    assert settle(ENERGIES, torch.tensor([3, 2]), 0.0) is ENERGIES
    assert settle(ENERGIES, torch.tensor([3, 5]), 0.0) is ENERGIES


def test_noise_is_fed_step_after_step() -> None:
    draws = torch.arange(24.0).reshape(6, 2, 2)
    noise = fed_noise(draws, 3)(NoiseConfig("white"), torch.tensor([0]), torch.tensor([1]), (2, 3, 2))
    assert noise[0, :, 0].tolist() == draws[3].tolist()
    assert noise[0, 1].tolist() == draws[3:, 1].tolist()


def changed(tmp_path: Path, tensor: str, rows: torch.Tensor) -> CaseResult:
    folder = tmp_path / CASE.name
    shutil.copytree(CASE, folder)
    io = load_file(folder / "io.safetensors")
    io[tensor] = rows
    save_file(io, folder / "io.safetensors")
    return check_folder(folder)


@pytest.mark.parametrize("step", [0, 2])
def test_a_wrong_elite_fails(tmp_path: Path, step: int) -> None:
    io = load_case(CASE).io
    rows, order = io["out.r2.elite_indices"].clone(), io["out.r2.energies"].argsort(1)
    rows[step, -1] = order[step, rows.shape[1]]  # the best of those that were none
    result = changed(tmp_path, "out.r2.elite_indices", rows)
    assert [(each.tensor, each.note) for each in result.comparisons if not each.ok] == [
        ("out.r2.elite_indices", "other elites")
    ]


def test_another_number_of_elites_fails(tmp_path: Path) -> None:
    rows = load_case(CASE).io["out.r2.elite_indices"][:, :3].contiguous()
    result = changed(tmp_path, "out.r2.elite_indices", rows)
    wrong = [each for each in result.comparisons if not each.ok]
    assert "out.r2.elite_indices" in [each.tensor for each in wrong]
    assert "shape" in wrong[0].note


@torch.inference_mode()
def test_a_run_whose_candidates_are_all_alike_passes_with_any_elites(tmp_path: Path) -> None:
    folder = tmp_path / CASE.name
    shutil.copytree(CASE, folder)
    run = {"tag": "pinned", "rollout": 2, "samples": 9, "topk": 3, "cem_steps": 2}
    run["axis"] = {"0": 0.01, "1": -0.02, "2": 0.03, "3": 0.5}
    text = json.loads((folder / "case.json").read_text())
    text["config"]["runs"].append(run)
    (folder / "case.json").write_text(json.dumps(text))
    draws = torch.randn(4, 9, 4, generator=torch.Generator().manual_seed(0))
    found = search(make_scene(load_case(CASE)), run_config(run), draws)
    found["elite_indices"] = torch.tensor([[8, 4, 6], [1, 7, 2]])
    io = load_file(folder / "io.safetensors") | {"out.pinned.noise": draws}
    save_file(io | {f"out.pinned.{n}": t.contiguous() for n, t in found.items()}, folder / "io.safetensors")
    result = check_folder(folder)
    assert result.ok, [each for each in result.comparisons if not each.ok] or result.failure
    assert sum(each.tensor.startswith("out.pinned.") for each in result.comparisons) == 7
    notes = {each.tensor: each.note for each in result.comparisons if each.note}
    assert notes == {"out.pinned.elite_indices": "4 taken from ties within 1e-05"}
