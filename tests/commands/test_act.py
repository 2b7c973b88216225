"""`mstar-plan act`: from pictures, numbers and texts to actions with names."""

from __future__ import annotations

import json

import numpy as np
import pytest
import toy_catalogue
from PIL import Image

from mstar_plan.cli import main


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mstar_plan.families.catalogue.FAMILIES", toy_catalogue.CATALOGUE)


@pytest.fixture
def picture(tmp_path):
    path = tmp_path / "now.png"
    Image.fromarray(np.full((4, 4, 3), 255, np.uint8)).save(path)
    return path


def see(picture, state="0.25,-0.5"):
    return ["--see", f"observation/image={picture}", "--see", f"observation/state={state}"]


def test_actions_are_printed(capsys, picture):
    assert main(["act", "model=actor", *see(picture), "--see", "prompt=go"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["actions"] == [[0.25, -0.5]] * 3
    assert (answer["names"], answer["dt_s"], answer["model"]) == (["x", "y"], 0.1, "actor")


def test_actions_go_to_a_file_and_the_seed_counts(picture, tmp_path):
    out = tmp_path / "actions.json"
    assert main(["act", "model=actor", "seed=2", f"out={out}", *see(picture)]) == 0
    assert json.loads(out.read_text())["actions"][0] == [2.25, 1.5]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--see", "observation/imag=x.png"], "did you mean 'observation/image'"),
        (["--see", "prompt"], "no key=value"),
        (["--see", "observation/image=none.png"], "cannot be read as a picture"),
        (["--see", "observation/state=a,b"], "write numbers"),
        (["model=writer"], "has no action, but text"),
    ],
)
def test_mistakes(capsys, words, said):
    words = words if words[0].startswith("model") else ["model=actor", *words]
    assert main(["act", *words]) == 2
    assert said in capsys.readouterr().err
