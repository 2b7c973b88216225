"""Frames of the video: what is shown changes with the moment, with and without latents."""

import numpy as np
import pytest

from mstar_plan.evaluation.foresight import Foresight
from mstar_plan.evaluation.panel import CHART_LEFT, COLUMNS, HEIGHT, ROWS, SIDE, WIDTH, Captions, EpisodePanel


def _foresight(moments, horizon=2):
    predicted = tuple(np.linspace(0.3, 0.1, horizon).astype(np.float32) for _ in range(moments))
    return Foresight(
        np.linspace(0.5, 0, moments).astype(np.float32), predicted, (moments,) * moments, tuple(range(moments))
    )


def _corner(frame, column, row):
    return frame[ROWS[row] + 4 : ROWS[row] + SIDE - 4, COLUMNS[column] + 4 : COLUMNS[column] + SIDE - 4]


@pytest.fixture
def one(result):
    return result(record=True)


def _panel(one, foresight=None, success_distance=0.05):
    return EpisodePanel(one, one.recording, Captions("Line", "cem"), success_distance, foresight)


def test_a_frame_for_each_moment_and_the_camera_moves(one):
    panel = _panel(one)
    assert len(panel) == 3
    frames = [panel.frame(i) for i in range(3)]
    assert all(f.shape == (HEIGHT, WIDTH, 3) and f.dtype == np.uint8 for f in frames)
    assert (_corner(frames[0], 0, 0) != _corner(frames[2], 0, 0)).any()
    assert (_corner(frames[0], 1, 0) == _corner(frames[2], 1, 0)).all()  # the goal stays
    assert (frames[0][:, CHART_LEFT:] != frames[1][:, CHART_LEFT:]).any()


def test_without_latents_start_and_overlay_are_shown(one):
    frame = _panel(one).frame(2)
    assert (_corner(frame, 0, 1) == _corner(_panel(one).frame(0), 0, 0)).all()
    assert _corner(frame, 1, 1).std() > 0


def test_with_latents_the_nearest_frame_and_the_reached_one_are_shown(one):
    panel = _panel(one, _foresight(3))
    first, last = panel.frame(0), panel.frame(2)
    assert (_corner(first, 0, 1) == _corner(first, 1, 0)).all()  # nearest is the goal
    assert (_corner(first, 1, 1) == _corner(last, 0, 0)).all()  # reached two steps later: what the camera sees then


def test_solved_moments_are_marked(one):
    panel = _panel(one)
    badge = (slice(34, 64), slice(WIDTH - 130, WIDTH - 56))
    assert (panel.frame(0)[badge] == 255).all()
    assert (panel.frame(2)[badge] != 255).any()


def test_a_controller_that_does_not_plan_has_a_panel_too(result):
    one = result(plan_ms=(), record=True)
    bare = type(one.recording)(
        tuple(type(s)(s.frame, s.picture, s.distance) for s in one.recording.steps),
        one.recording.goal_frame,
        one.recording.goal_picture,
    )
    panel = EpisodePanel(one, bare, Captions("Line", "random"), None, None)
    assert panel.frame(1).shape == (HEIGHT, WIDTH, 3)
