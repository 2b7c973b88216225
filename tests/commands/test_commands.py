"""Every command, run for real in this process: what it prints, what it writes, and how it fails."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mstar_plan.cli import COMMANDS, main
from mstar_plan.models.toy import render

REPORT_FIELDS = {
    "env", "model", "planner", "controller", "episodes", "seed", "success_rate", "success_ci95", "success_any_rate",
    "final_distance_mean", "plan_ms", "control_hz", "machine", "versions",
}  # fmt: skip


@pytest.fixture
def pictures(tmp_path: Path) -> tuple[str, str]:
    """Two pictures of the toy world: now and goal."""
    paths = []
    for name, place in (("now", [-0.3, 0.1]), ("goal", [0.2, -0.2])):
        paths.append(str(tmp_path / f"{name}.png"))
        Image.fromarray(render(np.array(place))).save(paths[-1])
    return paths[0], paths[1]


def test_help_and_version_need_no_torch() -> None:
    code = (
        "import sys; from mstar_plan.cli import main; main(['--help']); main(['--version']); "
        "print([m for m in ('torch', 'mujoco', 'grpc', 'omegaconf') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip().endswith("[]")
    assert all(command in done.stdout for command in COMMANDS)


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


@pytest.mark.render
@pytest.mark.parametrize("controller", ["grpc", "local", "random", "noop", "oracle"])
def test_evaluate_reports(controller, tmp_path) -> None:
    words = [f"controller={controller}", "env=wall", "episodes=2", "seed=7", f"out={tmp_path}"]
    assert main(["evaluate", *words]) == 0
    report = json.loads((tmp_path / "report.json").read_text())
    assert set(report) >= REPORT_FIELDS
    assert (report["controller"], report["env"], report["episodes"], report["seed"]) == (controller, "wall", 2, 7)
    assert set(report["plan_ms"]) >= {"p50", "p95", "p99", "max"}
    assert (tmp_path / "report.html").read_text().lstrip().startswith("<!")
    if controller in ("grpc", "local", "oracle"):
        assert report["success_rate"] == 1.0
    if controller == "noop":
        assert report["success_rate"] == 0.0


@pytest.mark.render
def test_demo(tmp_path, capsys) -> None:
    assert main(["demo", "tasks=[reach,push]", "episodes=1", f"out={tmp_path}"]) == 0
    shown = capsys.readouterr().out
    assert "Next:" in shown
    assert {p.name for p in tmp_path.glob("*.mp4")} == {"reach-grpc.mp4", "push-grpc.mp4"}
    reports = json.loads((tmp_path / "report.json").read_text())["reports"]
    assert [(r["env"], r["controller"]) for r in reports] == [
        ("reach", "grpc"), ("push", "grpc"), ("reach", "random"), ("push", "random"),
    ]  # fmt: skip
    assert "reach-grpc.mp4" in (tmp_path / "report.html").read_text()


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


def test_models(capsys) -> None:
    assert main(["models"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("toy", "reach", "wall", "push", "64 x 64"))


def test_graph_as_text_and_as_mermaid(capsys) -> None:
    assert main(["graph", "toy", "--walk", "plan"]) == 0
    shown = capsys.readouterr().out
    assert "loop search x iterations" in shown
    assert "encode_goal [encode]" in shown
    assert main(["graph", "toy", "--mermaid"]) == 0
    assert capsys.readouterr().out.count("flowchart") >= 4


@pytest.mark.render
def test_doctor(capsys) -> None:
    assert main(["doctor"]) == 0
    assert "ready" in capsys.readouterr().out


BAD = {
    "misspelt key": (["evaluate", "episods=3"], "did you mean 'episodes'"),
    "misspelt section key": (["evaluate", "planner.sampels=3"], "did you mean 'samples'"),
    "unknown planner": (["evaluate", "planner=cen"], "did you mean 'cem'"),
    "unknown env": (["evaluate", "env=rech"], "did you mean 'reach'"),
    "unknown model": (["plan", "a.png", "b.png", "model=tyo"], "did you mean 'toy'"),
    "wrong type": (["evaluate", "episodes=many"], "many"),
    "out of range": (["evaluate", "planner.std=-1"], "std is -1"),
    "unknown controller": (["evaluate", "controller=grcp"], "grcp"),
    "no word": (["evaluate", "episodes"], "key=value"),
    "a word twice": (["evaluate", "seed=1", "seed=2"], "seed"),
    "unknown walk": (["graph", "toy", "--walk", "plam"], "did you mean 'plan'"),
    "address and local": (["evaluate", "controller=local", "address=x:1"], "drop one"),
    "open host": (["serve", "models=[toy]", "host=0.0.0.0"], "insecure"),
    "no file": (["plan", "nowhere.png", "nowhere.png", "model=toy"], "nowhere.png"),
    "unknown train env": (["train", "env=rech"], "did you mean 'reach'"),
    "unknown train key": (["train", "env=reach", "trainer.secnds=3"], "did you mean 'seconds'"),
    "weights of nobody": (["evaluate", "controller=local", "weights=nowhere.safetensors"], "nowhere.safetensors"),
    "horizon over the limit": (["evaluate", "controller=local", "episodes=1", "control.horizon=65"], "65"),
    "no such option": (["graph", "toy", "--wlk", "plan"], "--wlk"),
}


@pytest.mark.render
@pytest.mark.parametrize("name", BAD)
def test_a_mistake_is_one_line_and_exit_code_2(name, capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    words, expected = BAD[name]
    assert main(words) == 2
    said = capsys.readouterr().err.strip().splitlines()
    said = [line for line in said if line.startswith("mstar-plan:")] or said
    assert len(said) == 1, said
    assert expected in said[0]
    assert "Traceback" not in said[0]


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
