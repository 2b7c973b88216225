"""Distances and nearest frames in a latent space that is known: the place of the bright column."""

import numpy as np
import pytest

from mstar_plan.evaluation.foresight import latent_distance, look_ahead
from mstar_plan.evaluation.records import Recording, StepRecord


def _frame(column):
    frame = np.zeros((8, 8, 3), np.uint8)
    frame[:, column] = 255
    return frame


def _encode(frame):
    return np.full((1, 2), float(frame[0, :, 0].argmax()), np.float32)


def _latents(*columns):
    return np.stack([np.full((1, 2), c, np.float32) for c in columns])


def _recording(plan, steps):
    moments = tuple(StepRecord(_frame(c), _frame(c), 0.0, None if p is None else plan(predicted=p)) for c, p in steps)
    return Recording(moments, _frame(6), _frame(6))


def test_distances_and_nearest_frames(plan):
    steps = [(0, _latents(1.0, 2.2)), (2, _latents(4.0, 5.9)), (3, None), (3, None)]
    foresight = look_ahead(_recording(plan, steps), _encode)
    assert foresight.reached == pytest.approx([6, 4, 3, 3])
    assert foresight.predicted[0] == pytest.approx([5, 3.8])
    assert foresight.predicted[1] == pytest.approx([2, 0.1])
    assert foresight.nearest[:2] == (1, 4)  # the frame at column 2; the goal
    assert foresight.longest == 2


def test_a_plan_goes_on_while_no_new_one_is_made(plan):
    foresight = look_ahead(_recording(plan, [(0, _latents(1.0)), (1, None), (2, None)]), _encode)
    assert foresight.made_at == (0, 0, 0)
    assert foresight.predicted[2] is foresight.predicted[0]


def test_plans_without_latents_predict_nothing(plan):
    recording = Recording(
        (StepRecord(_frame(0), _frame(0), 0.0, plan()), StepRecord(_frame(1), _frame(1), 0.0)), _frame(6), _frame(6)
    )
    foresight = look_ahead(recording, _encode)
    assert foresight.predicted == (None, None)
    assert foresight.nearest == (None, None)
    assert foresight.longest == 0
    assert foresight.reached == pytest.approx([6, 5])


def test_latent_distance_is_the_root_mean_square():
    assert latent_distance(np.array([[3.0, 4.0]], np.float32), np.zeros(2, np.float32)) == pytest.approx([12.5**0.5])
