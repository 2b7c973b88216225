"""The energy landscape as a picture and as JSON, of a world whose lowest action is known."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

from mstar_plan.cli import main
from mstar_plan.commands.landscape import lowest_over
from mstar_plan.rollout.landscape import action_grid
from mstar_plan.types import ActionSpec


def test_picture_and_numbers(pictures, tmp_path, capsys) -> None:
    out = tmp_path / "new" / "energy.png"
    words = ["model=toy", "points=11", "repeat=5", "plan=true", "planner.horizon=5"]
    assert main(["landscape", *pictures, *words, f"out={out}"]) == 0
    found = json.loads(out.with_suffix(".json").read_text())
    assert found["axes"] == ["velocity_x", "velocity_y"]
    assert found["lowest"]["action"] == pytest.approx([1.0, -0.6])
    energies = np.array(found["energies"])
    assert energies.shape == (11, 11)
    assert energies[10, 2] == energies.min() == pytest.approx(found["lowest"]["energy"])
    assert len(found["planned"]) == 2
    with Image.open(out) as picture:
        pixels = np.asarray(picture.convert("RGB"))
    assert (pixels == [255, 0, 0]).all(-1).sum() > 20, "the planned action is marked in red"
    assert "lowest energy" in capsys.readouterr().out


def test_axes_by_name_and_json_alone(pictures, tmp_path, capsys) -> None:
    words = ["model=toy", "axes=[velocity_y,velocity_x]", "points=3", "span=0.5", "deterministic=true"]
    assert main(["landscape", *pictures, *words, "out=-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["axes"] == ["velocity_y", "velocity_x"]
    assert found["values"] == [[-0.5, 0.0, 0.5]] * 2
    assert found["lowest"]["action"] == [-0.5, 0.5]
    assert found["planned"] is None
    assert main(["landscape", *pictures, *words, f"out={tmp_path / 'only.json'}"]) == 0
    assert [path.name for path in tmp_path.glob("only.*")] == ["only.json"]


def test_the_published_planner_and_energy_can_be_chosen(pictures, capsys) -> None:
    words = ["model=toy", "planner=vjepa2_cem", "objective=vjepa2", "plan=true", "repeat=2", "out=-"]
    assert main(["landscape", *pictures, *words]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["distance"] == "l1"
    assert np.sign(found["planned"]).tolist() == [1.0, -1.0]


def test_the_lowest_over_further_axes() -> None:
    grid = action_grid(ActionSpec([-1] * 4, [1] * 4, 0.1), (3, 0, 1), 3)
    energies = ((grid.actions - [0, 1, 0, -1]) ** 2).sum(1)
    lowest = lowest_over(grid, energies)
    assert lowest.shape == (3, 3)
    assert lowest[0, 1] == 0.0
    assert lowest[2, 1] == 4.0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["axes=[0]"], "a picture has two"),
        (["axes=[0,2]"], "name each of 0..1 once"),
        (["axes=[velocity_x,velocity_z]"], "did you mean 'velocity_y'"),
        (["points=100"], "10000 actions"),
        (["repeat=0"], "repeat is 0"),
        (["repeat=65"], "horizon is 65"),
        (["out=somewhere"], "a name that ends in"),
        (["out=energy.xyz"], "cannot be written"),
        (["state=[.nan]"], "NaN"),
    ],
)
def test_mistakes(pictures, words, said, capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["landscape", *pictures, "model=toy", *words]) == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.glob("landscape.*")) + list(tmp_path.glob("energy.*"))
