"""The heat map shows what it is given, the right way round."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from mstar_plan.evaluation.landscape_plot import draw_landscape

VALUES = np.array([[-1.0, 0.0, 1.0], [-2.0, 0.0, 2.0]], np.float32)


def test_the_first_axis_is_drawn_to_the_right_and_the_second_upwards(tmp_path) -> None:
    energies = np.zeros((3, 3), np.float32)
    energies[0, 2] = 1.0  # smallest x, largest y
    draw_landscape(tmp_path / "e.png", VALUES, energies, ["x", "y"], planned=[1.0, 2.0])
    with Image.open(tmp_path / "e.png") as picture:
        pixels = np.asarray(picture.convert("RGB")).astype(int)
    map_only = pixels[:, : int(0.75 * pixels.shape[1])]  # without the colour bar
    rows, columns = np.nonzero(np.abs(map_only - [253, 231, 37]).sum(-1) < 10)
    dark_rows, dark_columns = np.nonzero(np.abs(map_only - [68, 1, 84]).sum(-1) < 10)
    assert len(rows) > 1000
    assert rows.max() < np.median(dark_rows)
    assert columns.max() < np.median(dark_columns)


def test_the_lowest_point_is_marked_in_white(tmp_path) -> None:
    energies = np.full((3, 3), 1.0, np.float32)
    energies[0, 2] = 0.0  # smallest x, largest y
    draw_landscape(tmp_path / "e.png", VALUES, energies, ["x", "y"])
    with Image.open(tmp_path / "e.png") as picture:
        pixels = np.asarray(picture.convert("RGB")).astype(int)
    map_only = pixels[:, : int(0.75 * pixels.shape[1])]  # without the colour bar
    rows, columns = np.nonzero(np.abs(map_only - [68, 1, 84]).sum(-1) < 10)  # the cell around the marker
    middle = int((rows.min() + rows.max()) / 2), int((columns.min() + columns.max()) / 2)
    assert map_only[middle].tolist() == [255, 255, 255]


def test_an_unknown_format_is_refused(tmp_path) -> None:
    with pytest.raises(ValueError, match="xyz"):
        draw_landscape(tmp_path / "e.xyz", VALUES, np.zeros((3, 3), np.float32), ["x", "y"])
