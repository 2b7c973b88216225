"""A learning rate that follows the clock, so that a run of given seconds always ends annealed."""

from __future__ import annotations

import math


def learning_rate_factor(iteration: int, elapsed: float, *, warmup: int, floor: float = 0.01) -> float:
    """Returns the factor on the peak learning rate: a linear warm-up in iterations times a cosine in time.

    Args:
        iteration: Iterations done.
        elapsed: Share of the time that is over, 0 to 1 (more counts as 1).
        warmup: Iterations of the warm-up.
        floor: Factor at the end.
    """
    cosine = 0.5 * (1.0 + math.cos(math.pi * min(1.0, max(0.0, elapsed))))
    return min(1.0, (iteration + 1) / max(1, warmup)) * (floor + (1.0 - floor) * cosine)
