"""Small-sample statistics of an evaluation: intervals of rates, percentiles of times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import binomtest

from mstar_plan.errors import InvalidInputError


def wilson_interval(successes: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """Returns the Wilson score interval (low, high) of a success rate.

    Source: E. B. Wilson, "Probable inference, the law of succession, and statistical inference", JASA 22 (1927). Unlike
    the normal approximation it stays inside [0, 1] and says something at 0 and at 100 %.

    Raises:
        InvalidInputError: No trials, or successes outside 0..trials.
    """
    if trials < 1 or not 0 <= successes <= trials:
        raise InvalidInputError(f"{successes} successes of {trials} trials is no rate; run at least one episode")
    interval = binomtest(successes, trials).proportion_ci(confidence, method="wilson")
    return float(interval.low), float(interval.high)


@dataclass(frozen=True)
class Latency:
    """Percentiles of a series of times, milliseconds; all NaN for an empty series."""

    p50: float
    p95: float
    p99: float
    max: float

    @staticmethod
    def of(times_ms: Sequence[float]) -> Latency:
        """Returns the percentiles of `times_ms`, linearly interpolated between order statistics."""
        if len(times_ms) == 0:
            return Latency(float("nan"), float("nan"), float("nan"), float("nan"))
        p50, p95, p99 = (float(v) for v in np.percentile(np.asarray(times_ms, dtype=np.float64), (50, 95, 99)))
        return Latency(p50, p95, p99, float(max(times_ms)))


def quantiles_over_steps(
    series: Sequence[Sequence[float]], levels: tuple[float, ...] = (0.1, 0.5, 0.9)
) -> list[list[float]]:
    """Returns one curve a level over series of unequal length, at each step over the series that reach it."""
    longest = max((len(one) for one in series), default=0)
    columns = [[one[step] for one in series if step < len(one)] for step in range(longest)]
    return [[float(np.quantile(column, level)) for column in columns] for level in levels]
