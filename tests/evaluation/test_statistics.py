"""Intervals against published values, percentiles against values computed by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mstar_plan.errors import InvalidInputError
from mstar_plan.evaluation.statistics import Latency, quantiles_over_steps, wilson_interval


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [
        (81, 263, 0.2553, 0.3662),  # Newcombe (1998), table I, score method
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (50, 50, 0.9287, 1.0),
    ],
)
def test_wilson_interval_of_known_cases(successes, trials, low, high):
    assert wilson_interval(successes, trials) == pytest.approx((low, high), abs=5e-5)


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_interval_holds_the_rate_and_stays_a_rate(case):
    low, high = wilson_interval(*case)
    assert 0 <= low <= case[0] / case[1] + 1e-12
    assert case[0] / case[1] - 1e-12 <= high <= 1


@pytest.mark.parametrize(("successes", "trials"), [(0, 0), (3, 2), (-1, 5)])
def test_wilson_interval_refuses_what_is_no_rate(successes, trials):
    with pytest.raises(InvalidInputError, match=f"{successes} successes of {trials} trials"):
        wilson_interval(successes, trials)


def test_latency_percentiles():
    latency = Latency.of([float(v) for v in range(101)])
    assert (latency.p50, latency.p95, latency.p99, latency.max) == (50.0, 95.0, 99.0, 100.0)


def test_latency_of_nothing_is_nan():
    assert math.isnan(Latency.of([]).p95)


def test_quantiles_use_the_series_that_are_long_enough():
    assert quantiles_over_steps([[1.0, 5.0], [3.0], [2.0, 7.0]], (0.5,)) == [[2.0, 6.0]]
