"""The learning rate follows the clock."""

from __future__ import annotations

import pytest

from mstar_plan.training.schedule import learning_rate_factor


def test_warm_up_then_cosine_in_time():
    assert learning_rate_factor(0, 0.0, warmup=10) == pytest.approx(0.1)
    assert learning_rate_factor(9, 0.0, warmup=10) == pytest.approx(1.0)
    assert learning_rate_factor(999, 0.5, warmup=10) == pytest.approx(0.505)
    assert learning_rate_factor(999, 1.0, warmup=10) == pytest.approx(0.01)


def test_late_and_slow_runs_still_end_annealed():
    assert learning_rate_factor(20, 3.0, warmup=10) == pytest.approx(0.01)
    falling = [learning_rate_factor(100, s / 20, warmup=10) for s in range(21)]
    assert falling == sorted(falling, reverse=True)


def test_no_warm_up():
    assert learning_rate_factor(0, 0.0, warmup=0) == 1.0
