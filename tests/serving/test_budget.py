"""Which of three clocks ends a search, and what is said when none leaves time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mstar_plan.errors import DeadlineError, InvalidInputError, LimitExceededError
from mstar_plan.serving.budget import search_time
from mstar_plan.serving.proto.mstar.plan.v1 import planning_pb2 as pb


def given_time(asked=None, elapsed=0.0, remaining=None, margin=0.005, cap=5.0):
    return search_time(asked_s=asked, elapsed_s=elapsed, remaining_s=remaining, margin_s=margin, cap_s=cap)


@pytest.mark.parametrize(
    ("times", "total", "source"),
    [
        ({}, 5.0, pb.BUDGET_SOURCE_SERVER),
        ({"asked": 0.05}, 0.05, pb.BUDGET_SOURCE_REQUEST),
        ({"remaining": 0.1}, 0.095, pb.BUDGET_SOURCE_DEADLINE),
        ({"asked": 0.05, "remaining": 0.1}, 0.05, pb.BUDGET_SOURCE_REQUEST),
        ({"asked": 0.2, "remaining": 0.1, "elapsed": 0.02}, 0.115, pb.BUDGET_SOURCE_DEADLINE),
        ({"asked": 5.0}, 5.0, pb.BUDGET_SOURCE_REQUEST),
    ],
)
def test_the_least_counts(times, total, source):
    found = given_time(**times)
    assert found.total_s == pytest.approx(total)
    assert found.source == source
    assert found.left_s == pytest.approx(total - times.get("elapsed", 0.0))


@pytest.mark.parametrize("asked", [0.0, -1.0, float("nan")])
def test_not_a_time(asked):
    with pytest.raises(InvalidInputError, match="positive"):
        given_time(asked=asked)


def test_over_the_cap_is_refused_not_clamped():
    with pytest.raises(LimitExceededError, match="max_soft_time_s = 5"):
        given_time(asked=5.1)


@pytest.mark.parametrize("times", [{"remaining": 0.004}, {"asked": 0.01, "elapsed": 0.02}])
def test_nothing_left(times):
    with pytest.raises(DeadlineError, match="no time is left"):
        given_time(**times)


@given(st.floats(0.001, 5), st.floats(0.01, 10), st.floats(0, 0.0005))
def test_a_reply_is_never_planned_past_its_deadline(asked, remaining, elapsed):
    found = given_time(asked=asked, remaining=remaining, elapsed=elapsed)
    assert found.left_s <= remaining - 0.005 + 1e-9
    assert found.total_s <= asked + 1e-9
