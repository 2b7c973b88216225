"""Round ticks and the mapping from data to pictures."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mstar_plan.evaluation.axes import Axes, nice_ticks, span, tick_label


def test_ticks_are_round():
    assert nice_ticks(0, 1, 4) == [0, 0.5, 1]
    assert nice_ticks(0, 0.0437, 4) == [0, 0.02, 0.04]
    assert nice_ticks(0, 398, 4) == [0, 100, 200, 300]
    assert nice_ticks(-3, 9, 4) == [0, 5]


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
def test_ticks_stay_inside(low, width):
    ticks = nice_ticks(low, low + width, 4)
    slack = 1e-6 * (abs(low) + width)
    assert 1 <= len(ticks) <= 8
    assert all(low - slack <= tick <= low + width + slack for tick in ticks)


def test_labels_are_short():
    assert [tick_label(v) for v in (0.0, -0.0, 0.25, 100.0)] == ["0", "0", "0.25", "100"]


def test_span_shows_zero_and_ignores_what_is_not_finite():
    low, high = span([2.0, float("nan"), float("inf"), 4.0])
    assert low == 0
    assert 4 < high < 4.5
    assert span([]) == (0.0, 1.0)
    assert span([1.0], least=10)[1] >= 10


def test_points_map_corners_to_corners():
    axes = Axes(10, 20, 100, 50, (0.0, 2.0), (-1.0, 1.0))
    assert axes.point(0, -1) == (10, 70)
    assert axes.point(2, 1) == (110, 20)
    assert axes.points([1.0], [0.0]) == [(60, 45)]
    assert axes.point(1, 0) == pytest.approx((60, 45))
