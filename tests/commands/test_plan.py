"""One plan from two pictures: a table, JSON, and what is wrong with a picture."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from PIL import Image

from mstar_plan.cli import main


def test_plan_writes_what_it_found(pictures, tmp_path, capsys) -> None:
    out = tmp_path / "found" / "plan.json"
    assert main(["plan", *pictures, "model=toy", "planner.samples=256", f"out={out}"]) == 0
    found = json.loads(out.read_text())
    assert found["status"] == "complete"
    moved = 0.1 * np.array(found["actions"]).sum(0)
    np.testing.assert_allclose(moved, [0.5, -0.3], atol=0.1)
    assert "velocity_x" in capsys.readouterr().out


def test_plan_prints_json_alone(pictures, capsys) -> None:
    assert main(["plan", *pictures, "model=toy", "seed=4", "deterministic=true", "out=-"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert main(["plan", *pictures, "model=toy", "seed=4", "deterministic=true", "out=-"]) == 0
    assert json.loads(capsys.readouterr().out)["actions"] == first["actions"]


def test_damaged_pictures(tmp_path, pictures, capsys) -> None:
    broken = tmp_path / "broken.png"
    broken.write_bytes(Path(pictures[0]).read_bytes()[:60])
    assert main(["plan", str(broken), pictures[1], "model=toy"]) == 2
    assert "broken.png cannot be read" in capsys.readouterr().err
    small = tmp_path / "small.png"
    Image.new("RGB", (32, 48)).save(small)
    assert main(["plan", str(small), pictures[1], "model=toy"]) == 2
    assert "64x64" in capsys.readouterr().err
    assert main(["plan", str(small), str(small), "model=reach", "resize=true", f"out={tmp_path / 'p.json'}"]) == 0


def test_damaged_weights(tmp_path, capsys) -> None:
    weights = tmp_path / "reach.safetensors"
    shipped = Path(sys.modules["mstar_plan"].__file__).parent / "models" / "pretrained" / "reach.safetensors"
    weights.write_bytes(shipped.read_bytes()[:100_000])
    assert main(["plan", "a.png", "b.png", "model=reach", f"weights={weights}"]) == 2
    assert "reach.safetensors" in capsys.readouterr().err


def test_a_published_bundle_is_converted_and_planned_with(tmp_path, capsys) -> None:
    """The whole way of a user of V-JEPA 2-AC; the robot's pose comes as a word."""
    bundle = Path(__file__).parents[1] / "golden" / "vjepa2_ac_checkpoint" / "model.pt"
    sizes = ["img_size=32", "num_frames=8", "num_heads=2", "predictor_heads=2"]
    weights, out = tmp_path / "m.safetensors", tmp_path / "plan.json"
    assert main(["convert", str(bundle), str(weights), *sizes]) == 0
    for name, value in (("now", 50), ("goal", 200)):
        Image.new("RGB", (32, 32), (value, 100, 0)).save(tmp_path / f"{name}.png")
    words = ["plan", str(tmp_path / "now.png"), str(tmp_path / "goal.png"), "model=vjepa2_ac", f"weights={weights}"]
    words += ["planner=vjepa2_cem", "planner.samples=20", "planner.iterations=2", f"out={out}"]
    assert main(words) == 2
    assert "observation.state is missing" in capsys.readouterr().err
    assert main([*words, "state=[0.4, 0, 0.3, 0, 0, 0, 0.5]"]) == 0
    found = json.loads(out.read_text())
    assert found["action_names"][:3] == ["dx", "dy", "dz"]
    assert len(found["actions"]) == 2
    assert main([*words, "state=[0.4, 0]"]) == 2
