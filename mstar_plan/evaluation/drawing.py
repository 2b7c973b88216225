"""A small canvas on Pillow: drawn at twice the size and halved, so that lines and letters are smooth."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from mstar_plan.evaluation.axes import Axes, nice_ticks, tick_label
from mstar_plan.types import ImageArray

SCALE = 2
DASH, GAP = 6.0, 5.0

PAPER, INK, MUTED, GRID = "#ffffff", "#16202c", "#66717f", "#e3e7ec"
REACHED, PREDICTED, SOLVED, SOLVED_TINT = "#1f6fd6", "#e2711d", "#0f8a5f", "#e4f4ec"
PAST = "#c9d0d8"

Point = tuple[float, float]


@lru_cache(maxsize=32)
def _font(size: float) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size * SCALE)


class Canvas:
    """A picture to draw on; all lengths are pixels of the finished picture.

    Args:
        width, height: Its size.
        base: A canvas to start from a copy of.
    """

    def __init__(self, width: int, height: int, base: Canvas | None = None) -> None:
        if base is None:
            self._image = Image.new("RGB", (width * SCALE, height * SCALE), PAPER)
        else:
            self._image = base._image.copy()
        self._draw = ImageDraw.Draw(self._image)

    def copy(self) -> Canvas:
        """Returns a canvas with the same picture."""
        return Canvas(0, 0, base=self)

    def pixels(self) -> ImageArray:
        """Returns the finished picture, [height, width, 3] uint8 RGB."""
        return np.asarray(self._image.reduce(SCALE))

    def text(self, at: Point, text: str, size: float = 14, color: str = INK, anchor: str = "ls") -> None:
        """Writes at a point; `anchor` as in Pillow: l, m, r and s (baseline), m (middle), a (top)."""
        self._draw.text((at[0] * SCALE, at[1] * SCALE), text, fill=color, font=_font(size), anchor=anchor)

    def picture(self, at: Point, size: int, pixels: ImageArray, color: str = GRID) -> None:
        """Places a square picture with a thin frame; small pictures keep their square pixels."""
        side = size * SCALE
        smooth = pixels.shape[0] > 128
        how = Image.Resampling.BICUBIC if smooth else Image.Resampling.NEAREST
        left, top = round(at[0] * SCALE), round(at[1] * SCALE)
        self._image.paste(Image.fromarray(pixels).resize((side, side), how), (left, top))
        rim = (left - SCALE, top - SCALE, left + side + SCALE - 1, top + side + SCALE - 1)
        self._draw.rectangle(rim, outline=color, width=SCALE)

    def curve(self, points: Sequence[Point], color: str, width: float = 2.0) -> None:
        """Draws a line through points with round ends."""
        scaled = [(x * SCALE, y * SCALE) for x, y in points]
        if len(scaled) > 1:
            self._draw.line(scaled, fill=color, width=round(width * SCALE), joint="curve")
        for point in scaled[:1] + scaled[-1:]:
            self._circle(point, width * SCALE / 2, color)

    def dashes(self, points: Sequence[Point], color: str, width: float = 2.0) -> None:
        """Draws a dashed line through points."""
        xs, ys = (np.asarray(values) * SCALE for values in zip(*points, strict=True))
        along = np.concatenate([[0.0], np.cumsum(np.hypot(np.diff(xs), np.diff(ys)))])
        for start in np.arange(0.0, along[-1], SCALE * (DASH + GAP)):
            end = min(start + SCALE * DASH, along[-1])
            stops = np.array([start, *along[(along > start) & (along < end)], end])  # its ends, and corners between
            dash = np.stack([np.interp(stops, along, xs), np.interp(stops, along, ys)], axis=1)
            self._draw.line([(float(x), float(y)) for x, y in dash], fill=color, width=round(width * SCALE))

    def dot(self, at: Point, color: str, radius: float = 4.0) -> None:
        """Draws a filled circle with a light rim."""
        self._circle((at[0] * SCALE, at[1] * SCALE), (radius + 1.5) * SCALE, PAPER)
        self._circle((at[0] * SCALE, at[1] * SCALE), radius * SCALE, color)

    def box(self, corner: Point, opposite: Point, color: str, radius: float = 0.0) -> None:
        """Fills a rectangle, with round corners if asked for."""
        corners = (corner[0] * SCALE, corner[1] * SCALE, opposite[0] * SCALE, opposite[1] * SCALE)
        self._draw.rounded_rectangle(corners, radius * SCALE, fill=color)

    def frame(
        self, axes: Axes, title: str, note: str = "", x_unit: str = "", x_ticks: Sequence[float] | None = None
    ) -> None:
        """Draws what does not change of a chart: title, a note at its right, grid, ticks with their numbers."""
        right, bottom = axes.left + axes.width, axes.top + axes.height
        self.text((axes.left, axes.top - 14), title, 15)
        self.text((right, axes.top - 14), note, 12, MUTED, "rs")
        for value in nice_ticks(*axes.y, 3):
            y = axes.point(axes.x[0], value)[1]
            self.curve([(axes.left, y), (right, y)], GRID, 1)
            self.text((axes.left - 8, y), tick_label(value), 12, MUTED, "rm")
        for value in nice_ticks(*axes.x, 6) if x_ticks is None else x_ticks:
            at = axes.point(value, axes.y[0])[0]
            self.text((at, bottom + 8), f"{tick_label(value)}{x_unit}", 12, MUTED, "ma")

    def _circle(self, at: Point, radius: float, color: str) -> None:
        self._draw.ellipse((at[0] - radius, at[1] - radius, at[0] + radius, at[1] + radius), fill=color)
