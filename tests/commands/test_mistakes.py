"""Every mistake is one line on stderr and exit code 2; help needs nothing heavy."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mstar_plan.cli import COMMANDS, main

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


def test_help_and_version_need_no_torch() -> None:
    code = (
        "import sys; from mstar_plan.cli import main; main(['--help']); main(['--version']); "
        "print([m for m in ('torch', 'mujoco', 'grpc', 'omegaconf') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip().endswith("[]")
    assert all(command in done.stdout for command in COMMANDS)
