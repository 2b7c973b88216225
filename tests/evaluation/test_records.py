"""Evenly spaced frames of an episode."""

import numpy as np

from mstar_plan.evaluation.records import strip_of


def test_strip_goes_from_first_to_last_and_ends_with_the_goal():
    frames = [np.full((2, 2, 3), i, np.uint8) for i in range(11)]
    strip = strip_of(frames, np.full((2, 2, 3), 99, np.uint8), count=6)
    assert strip[:, 0, 0, 0].tolist() == [0, 2, 4, 6, 8, 10, 99]


def test_strip_of_a_short_episode_repeats_frames():
    frames = [np.full((2, 2, 3), i, np.uint8) for i in range(2)]
    assert len(strip_of(frames, frames[0])) == 7


def test_result_knows_its_length_and_end(result):
    one = result(distances=(0.3, 0.2, 0.1))
    assert one.steps == 2
    assert np.isclose(one.final_distance, 0.1)
