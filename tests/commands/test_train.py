"""Collect, train, and plan with what was trained, in seconds."""

from __future__ import annotations

import json

import pytest

from mstar_plan.cli import main


@pytest.mark.render
def test_collect_then_train(tmp_path, capsys) -> None:
    data = tmp_path / "data"
    assert main(["collect", "env=wall", "episodes=4", "steps=12", f"out={data}"]) == 0
    assert str(data) in capsys.readouterr().out
    weights = tmp_path / "wall.safetensors"
    short = ["trainer.seconds=2", "trainer.batch=8", "trainer.checks=2", "refinement.seconds=1", "trainer.held_out=0.3"]
    words = ["env=wall", f"data={data}", "episodes=4", "steps=12", f"out={weights}", *short]
    assert main(["train", *words]) == 0
    assert weights.stat().st_size < 8e6
    words = ["env=wall", "controller=local", "episodes=1", f"weights={weights}", f"out={tmp_path}"]
    assert main(["evaluate", *words]) == 0
    assert json.loads((tmp_path / "report.json").read_text())["settings"]["weights"] == str(weights)


@pytest.mark.render
def test_the_env_also_chooses_the_kind_of_model(tmp_path, capsys) -> None:
    data, weights = tmp_path / "data", tmp_path / "vjepa2_wall.safetensors"
    assert main(["collect", "env=wall", "episodes=4", "steps=6", f"out={data}"]) == 0
    phases = "rollouts.phases=[{iterations: 2, steps: 3, batch: 4}]"
    short = ["distillation.iterations=2", "distillation.batch=8", phases, "held_out=0.3"]
    assert main(["train", "env=vjepa2_wall", f"data={data}", "episodes=4", "steps=6", f"out={weights}", *short]) == 0
    assert f"evaluate env=vjepa2_wall weights={weights}" in capsys.readouterr().out
    words = ["env=vjepa2_wall", "controller=local", "episodes=1", "planner.samples=16", "planner.iterations=1"]
    assert main(["evaluate", *words, f"weights={weights}", f"out={tmp_path}"]) == 0
