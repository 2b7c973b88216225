"""The canvas puts what it is told where it is told."""

import numpy as np

from mstar_plan.evaluation.axes import Axes
from mstar_plan.evaluation.drawing import PREDICTED, REACHED, Canvas


def _is(pixel, color, tolerance=3):
    return np.abs(pixel.astype(int) - [int(color[i : i + 2], 16) for i in (1, 3, 5)]).max() <= tolerance


def test_curves_dots_and_boxes_have_their_colours():
    canvas = Canvas(100, 60)
    canvas.curve([(10, 30), (90, 30)], REACHED, 4)
    canvas.box((0, 0), (9, 9), PREDICTED)
    pixels = canvas.pixels()
    assert pixels.shape == (60, 100, 3)
    assert pixels.dtype == np.uint8
    assert _is(pixels[30, 50], REACHED)
    assert _is(pixels[4, 4], PREDICTED)
    assert (pixels[50, 50] == 255).all()


def test_dashes_leave_gaps():
    canvas = Canvas(100, 20)
    canvas.dashes([(0, 10), (50, 10), (100, 10)], REACHED, 4)
    row = [_is(pixel, REACHED) for pixel in canvas.pixels()[10]]
    assert 40 < sum(row) < 70


def test_small_pictures_keep_their_pixels():
    canvas = Canvas(40, 40)
    picture = np.zeros((2, 2, 3), np.uint8)
    picture[0, 0] = 200
    canvas.picture((4, 4), 32, picture)
    pixels = canvas.pixels()
    assert (pixels[6:18, 6:18] == 200).all()
    assert (pixels[22:34, 22:34] == 0).all()


def test_a_copy_is_independent():
    canvas = Canvas(20, 20)
    canvas.copy().box((0, 0), (20, 20), REACHED)
    assert (canvas.pixels() == 255).all()


def test_a_chart_has_its_grid_and_text():
    canvas = Canvas(200, 120)
    canvas.frame(Axes(40, 40, 140, 50, (0.0, 1.0), (0.0, 1.0)), "Title", "mm", " s")
    pixels = canvas.pixels()
    assert (pixels[90, 60:170] < 255).all()  # the line at zero
    assert (pixels[10:30, 40:90] < 128).any()  # the title
