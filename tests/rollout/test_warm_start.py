"""A warm start moves on with the robot."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mstar_plan.errors import InvalidInputError
from mstar_plan.rollout.warm_start import shift
from mstar_plan.types import ActionSpec, WarmStart

MEAN = np.arange(8, dtype=np.float32).reshape(4, 2)
WARM = WarmStart(MEAN, np.stack([MEAN + 10, MEAN + 20]))


def test_shift_drops_what_was_executed_and_keeps_still_at_the_end() -> None:
    moved = shift(WARM, 1)
    assert moved.mean.tolist() == [[2, 3], [4, 5], [6, 7], [0, 0]]
    assert moved.elites[1].tolist() == [[22, 23], [24, 25], [26, 27], [0, 0]]
    assert WARM.mean[0].tolist() == [0, 1], "the old one is not changed"


def test_the_end_is_the_centre_of_the_bounds() -> None:
    spec = ActionSpec(low=np.array([0.0, -2.0]), high=np.array([1.0, 0.0]), dt_s=0.1)
    assert shift(WARM, 3, spec).mean.tolist() == [[6, 7], [0.5, -1], [0.5, -1], [0.5, -1]]


@given(first=st.integers(0, 5), second=st.integers(0, 5))
def test_shifts_add_up(first: int, second: int) -> None:
    twice, once = shift(shift(WARM, first), second), shift(WARM, first + second)
    assert np.array_equal(twice.mean, once.mean)
    assert np.array_equal(twice.elites, once.elites)


def test_no_elites_and_too_many_steps() -> None:
    empty = shift(WarmStart(MEAN, np.zeros((0, 4, 2), np.float32)), 9)
    assert empty.elites.shape == (0, 4, 2)
    assert not empty.mean.any()


def test_backwards_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="steps is -1"):
        shift(WARM, -1)
