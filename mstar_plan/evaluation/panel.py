"""The frames of an episode's video: camera, goal, predicted against reached, and the curves beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from mstar_plan.evaluation.axes import Axes, span
from mstar_plan.evaluation.drawing import (
    INK,
    MUTED,
    PAPER,
    PAST,
    PREDICTED,
    REACHED,
    SOLVED,
    SOLVED_TINT,
    Canvas,
)
from mstar_plan.evaluation.foresight import Foresight
from mstar_plan.evaluation.records import EpisodeResult, Recording
from mstar_plan.types import ImageArray, Plan

WIDTH, HEIGHT = 1280, 720
SIDE, COLUMNS, ROWS = 266, (48, 338), (118, 422)
CHART_LEFT, CHART_WIDTH = 704, 524
PAST_COSTS = 12  # earlier plans whose costs stay visible


@dataclass(frozen=True, eq=False)
class Captions:
    """What is written on the frames.

    Attributes:
        title: The task.
        subtitle: Who is in control.
    """

    title: str
    subtitle: str


class EpisodePanel:
    """Draws the frames of one episode; what does not change between them is drawn once.

    Args:
        result: The episode.
        recording: All its moments.
        captions: What is written on the frames.
        success_distance: Metres below which the task counts as solved, if known.
        foresight: What the model predicted, if its latents are at hand.
    """

    def __init__(
        self,
        result: EpisodeResult,
        recording: Recording,
        captions: Captions,
        success_distance: float | None,
        foresight: Foresight | None,
    ) -> None:
        self._result, self._recording, self._foresight = result, recording, foresight
        self._success_distance = success_distance
        self._distances_mm = [1e3 * step.distance for step in recording.steps]
        self._seconds = [result.dt_s * i for i in range(len(recording.steps))]
        self._charts = self._lay_out()
        self._base = self._draw_base(captions)

    def __len__(self) -> int:
        return len(self._recording.steps)

    def frame(self, index: int) -> ImageArray:
        """Returns the picture of one moment, [720, 1280, 3] uint8 RGB."""
        canvas = self._base.copy()
        self._header(canvas, index)
        self._pictures(canvas, index)
        self._distance_chart(canvas, index)
        if "latent" in self._charts:
            self._latent_chart(canvas, index)
        if "cost" in self._charts:
            self._cost_chart(canvas, index)
        return canvas.pixels()

    def _lay_out(self) -> dict[str, Axes]:
        """Returns the axes of the charts that there is something to show in, one below the other."""
        horizon = self._foresight.longest if self._foresight else 0
        time = (0.0, self._seconds[-1] + horizon * self._result.dt_s * 0.5)
        least = 1e3 * (self._success_distance or 0.0)
        ranges = {"distance": (time, span(self._distances_mm, least=2 * least))}
        if self._foresight is not None and horizon:
            drawn = [p for p in self._foresight.predicted if p is not None]
            ranges["latent"] = (time, span([*self._foresight.reached, *np.concatenate(drawn)]))
        costs = [cost for step in self._recording.steps if step.plan for cost in step.plan.cost_history]
        if costs:
            longest = max(len(step.plan.cost_history) for step in self._recording.steps if step.plan)
            ranges["cost"] = ((1.0, max(2.0, float(longest))), span(costs))
        gap = 74
        height = (HEIGHT - 32 - ROWS[0] - gap * (len(ranges) - 1) - 22) / len(ranges)
        return {
            name: Axes(CHART_LEFT, ROWS[0] + i * (height + gap), CHART_WIDTH, height, x, y)
            for i, (name, (x, y)) in enumerate(ranges.items())
        }

    def _draw_base(self, captions: Captions) -> Canvas:
        canvas = Canvas(WIDTH, HEIGHT)
        canvas.text((COLUMNS[0], 58), captions.title, 30)
        canvas.text((COLUMNS[0], 82), captions.subtitle, 14, MUTED)
        names = ["Camera", "Goal", "", ""]
        for name, (x, y) in zip(names, self._corners(), strict=True):
            canvas.text((x, y - 9), name, 15)
        canvas.picture(self._corners()[1], SIDE, self._recording.goal_picture)
        axes = self._charts["distance"]
        if self._success_distance is not None:
            canvas.box(axes.point(axes.x[0], 1e3 * self._success_distance), axes.point(axes.x[1], 0.0), SOLVED_TINT)
        canvas.frame(axes, "Distance to the goal", "mm", " s")
        if self._success_distance is not None:
            height = axes.point(0, 1e3 * self._success_distance)[1]
            canvas.text((axes.left + axes.width - 6, height - 6), "solved below", 12, SOLVED, "rs")
        if "latent" in self._charts:
            canvas.frame(self._charts["latent"], "Distance to the goal in the model's latent space", "", " s")
        if "cost" in self._charts:
            axes = self._charts["cost"]
            canvas.frame(axes, "Best cost after each planner iteration", "", "", [*range(1, int(axes.x[1]) + 1)])
        return canvas

    def _corners(self) -> list[tuple[int, int]]:
        return [(x, y) for y in ROWS for x in COLUMNS]

    def _header(self, canvas: Canvas, index: int) -> None:
        distance = self._distances_mm[index]
        solved = self._success_distance is not None and distance < 1e3 * self._success_distance
        right = CHART_LEFT + CHART_WIDTH
        canvas.text((CHART_LEFT, 58), f"{self._seconds[index]:.1f} s", 22)
        canvas.text((CHART_LEFT + 84, 58), f"{distance:.0f} mm to go", 22, MUTED)
        if solved:
            canvas.box((right - 86, 33), (right, 65), SOLVED, 16)
            canvas.text((right - 43, 49), "solved", 16, PAPER, "mm")

    def _pictures(self, canvas: Canvas, index: int) -> None:
        steps, corners = self._recording.steps, self._corners()
        canvas.picture(corners[0], SIDE, steps[index].picture)
        predicted = self._foresight.predicted[index] if self._foresight else None
        if self._foresight is None or predicted is None:
            self._comparison(canvas, index)
            return
        nearest = self._foresight.nearest[index]
        assert nearest is not None, "a prediction has a nearest frame"
        made_at = self._foresight.made_at[index]
        then = min(made_at + len(predicted), len(steps) - 1)
        ahead = f"+{(len(predicted) - (index - made_at)) * self._result.dt_s:.1f} s"
        goal = nearest == len(steps)
        canvas.picture(corners[2], SIDE, self._recording.goal_picture if goal else steps[nearest].picture, PREDICTED)
        canvas.picture(corners[3], SIDE, steps[then].picture, REACHED)
        self._caption(canvas, corners[2], "Predicted", PREDICTED, f"for {ahead}, nearest known frame")
        end = then < made_at + len(predicted)
        self._caption(canvas, corners[3], "Reached", REACHED, "at the end" if end else f"at {ahead}")

    def _comparison(self, canvas: Canvas, index: int) -> None:
        """Without latents: where it began, and the camera laid over the goal."""
        corners, recording = self._corners(), self._recording
        canvas.picture(corners[2], SIDE, recording.steps[0].picture)
        self._caption(canvas, corners[2], "Start", INK, "")
        now = Image.fromarray(recording.steps[index].picture)
        goal = Image.fromarray(recording.goal_picture).resize(now.size)
        canvas.picture(corners[3], SIDE, np.asarray(Image.blend(now, goal, 0.4)))
        self._caption(canvas, corners[3], "Camera over goal", INK, "")

    def _caption(self, canvas: Canvas, corner: tuple[int, int], name: str, color: str, note: str) -> None:
        canvas.text((corner[0], corner[1] - 9), name, 15, color)
        canvas.text((corner[0] + SIDE, corner[1] - 9), note, 12, MUTED, "rs")

    def _distance_chart(self, canvas: Canvas, index: int) -> None:
        axes = self._charts["distance"]
        self._so_far(canvas, axes, self._distances_mm, index)

    def _latent_chart(self, canvas: Canvas, index: int) -> None:
        axes, foresight = self._charts["latent"], self._foresight
        assert foresight is not None, "the chart exists for foresight alone"
        predicted = foresight.predicted[index]
        if predicted is not None:
            made_at = foresight.made_at[index]
            values = [foresight.reached[made_at], *predicted]
            seconds = [(made_at + i) * self._result.dt_s for i in range(len(values))]
            inside = [(s, v) for s, v in zip(seconds, values, strict=True) if s <= axes.x[1]]
            canvas.dashes([axes.point(s, float(v)) for s, v in inside], PREDICTED)
        self._so_far(canvas, axes, [float(v) for v in foresight.reached], index)

    def _so_far(self, canvas: Canvas, axes: Axes, values: Sequence[float], index: int) -> None:
        points = axes.points(self._seconds[: index + 1], values[: index + 1])
        canvas.curve(points, REACHED, 2.5)
        canvas.dot(points[-1], REACHED)

    def _cost_chart(self, canvas: Canvas, index: int) -> None:
        axes = self._charts["cost"]
        plans = [step.plan for step in self._recording.steps[: index + 1] if step.plan is not None]
        for plan in plans[-PAST_COSTS - 1 : -1]:
            canvas.curve(_cost_points(axes, plan), PAST, 1.2)
        if plans:
            points = _cost_points(axes, plans[-1])
            canvas.curve(points, PREDICTED, 2.5)
            for point in points:
                canvas.dot(point, PREDICTED, 3.5)
        plan_ms = next((s.plan_ms for s in reversed(self._recording.steps[: index + 1]) if s.plan_ms is not None), None)
        if plan_ms is not None:
            canvas.text((axes.left + axes.width, axes.top - 14), f"planned in {plan_ms:.0f} ms", 12, MUTED, "rs")


def _cost_points(axes: Axes, plan: Plan) -> list[tuple[float, float]]:
    return axes.points(range(1, len(plan.cost_history) + 1), plan.cost_history)
