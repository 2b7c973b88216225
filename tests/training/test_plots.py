"""Curves as a picture."""

from __future__ import annotations

import imageio.v3 as iio

from mstar_plan.training.plots import draw_curves


def test_a_picture_is_written_whatever_columns_there_are(tmp_path):
    row = {"loss": 0.5, "error_mean": 0.1, "error_4": 0.2, "effective_rank": 3.0, "probe_r2": 0.9}
    rows = [{"seconds": seconds, **row} for seconds in (1.0, 2.0)]
    path = tmp_path / "deep" / "curves.png"
    draw_curves(rows, path, "toy")
    picture = iio.imread(path)
    assert picture.shape[0] > 500
    assert picture.std() > 0
