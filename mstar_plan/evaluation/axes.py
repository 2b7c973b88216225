"""Where values lie on a chart: round ticks, and the way from data to picture coordinates."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass


def nice_ticks(low: float, high: float, count: int = 4) -> list[float]:
    """Returns about `count` round numbers (1, 2 or 5 times a power of ten apart) in [low, high].

    Source: P. Heckbert, "Nice numbers for graph labels", Graphics Gems (1990).
    """
    if not high > low:
        return [low]
    rough = (high - low) / max(1, count)
    magnitude = 10.0 ** math.floor(math.log10(rough))
    step = next(m * magnitude for m in (1, 2, 5, 10) if m * magnitude >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def tick_label(value: float) -> str:
    """Returns a tick's number without trailing zeros, and no minus before zero."""
    return f"{value:.6g}" if value else "0"


def span(values: Iterable[float], *, least: float = 0.0) -> tuple[float, float]:
    """Returns (0 or below, above the largest finite value): the range of an axis that shows zero.

    Args:
        values: What is shown; those that are not finite do not count.
        least: The upper end is at least this.
    """
    finite = [v for v in values if math.isfinite(v)]
    low, high = min([0.0, *finite]), max([least, *finite])
    return low, (low + (high - low) * 1.06) if high > low else low + 1.0


@dataclass(frozen=True)
class Axes:
    """A rectangle of a picture that shows a range of data; y grows upwards in data and downwards in the picture.

    Attributes:
        left, top, width, height: The rectangle, in picture units.
        x, y: (low, high) of the data.
    """

    left: float
    top: float
    width: float
    height: float
    x: tuple[float, float]
    y: tuple[float, float]

    def point(self, x: float, y: float) -> tuple[float, float]:
        """Returns the picture coordinates of a value."""
        return (
            self.left + (x - self.x[0]) / (self.x[1] - self.x[0]) * self.width,
            self.top + (self.y[1] - y) / (self.y[1] - self.y[0]) * self.height,
        )

    def points(self, xs: Iterable[float], ys: Iterable[float]) -> list[tuple[float, float]]:
        """Returns the picture coordinates of a curve."""
        return [self.point(x, y) for x, y in zip(xs, ys, strict=True)]
