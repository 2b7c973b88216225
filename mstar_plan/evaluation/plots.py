"""The charts of the page, as inline SVG whose colours come from the page's style sheet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

import numpy as np

from mstar_plan.evaluation.axes import Axes, nice_ticks, span, tick_label
from mstar_plan.evaluation.records import EpisodeResult
from mstar_plan.evaluation.statistics import Latency, quantiles_over_steps

WIDTH, HEIGHT = 420, 250
LEFT, RIGHT, TOP, BOTTOM = 44, 14, 16, 38
BINS = 28


def distance_chart(
    episodes: Sequence[EpisodeResult],
    success_distance: float | None,
    baselines: Sequence[tuple[str, Sequence[EpisodeResult]]] = (),
) -> str:
    """Returns the distance to the goal over time: a line an episode, the median, and the medians of baselines."""
    curves = [[1e3 * float(d) for d in e.distances] for e in episodes]
    others = [(name, _median_mm(some)) for name, some in baselines]
    threshold = 1e3 * success_distance if success_distance else 0.0
    dt_s = episodes[0].dt_s
    longest = max(len(curve) for curve in [*curves, *(curve for _, curve in others)])
    high = span([v for curve in curves for v in curve] + [v for _, curve in others for v in curve], least=2 * threshold)
    axes = _axes((0.0, max(dt_s, (longest - 1) * dt_s)), high)
    parts = []
    if threshold:
        parts.append(_box(axes, "solved-band", axes.x, threshold))
    parts.append(_grid(axes, "time in s", "mm"))
    for result, curve in zip(episodes, curves, strict=True):
        parts.append(_line(axes, _seconds(curve, dt_s), curve, "episode" if result.success_last else "episode lost"))
    for name, curve in others:
        parts.append(_line(axes, _seconds(curve, dt_s), curve, "baseline"))
        x, y = axes.point((len(curve) - 1) * dt_s, curve[-1])
        parts.append(_text(x - 4, max(y - 5, axes.top + 8), name, "note end"))
    median = _median_mm(episodes)
    parts.append(_line(axes, _seconds(median, dt_s), median, "median"))
    lost = sum(not e.success_last for e in episodes)
    alt = (
        f"Distance to the goal over time in {len(episodes)} episodes; the median falls from {median[0]:.0f} to "
        f"{median[-1]:.1f} mm; {lost} episodes end unsolved."
    )
    return _svg(alt, parts)


def latency_chart(times_ms: Sequence[float], budget_ms: float | None = None) -> str:
    """Returns a histogram of plan times with p50, p95 and p99, and the time that a step leaves if it is near."""
    latency = Latency.of(times_ms)
    marks = [("p50", latency.p50), ("p95", latency.p95), ("p99", latency.p99)]
    high = max(latency.p99 * 1.25, 1e-3)
    if budget_ms is not None and budget_ms < 3 * high:
        high = max(high, budget_ms * 1.08)
    counts, edges = np.histogram(np.minimum(times_ms, high), bins=BINS, range=(0.0, high))
    axes = _axes((0.0, high), (0.0, float(counts.max()) * 1.3))
    parts = [_grid(axes, "time of a plan in ms", "plans")]
    for count, low, up in zip(counts, edges[:-1], edges[1:], strict=True):
        if count:
            parts.append(_box(axes, "bar", (float(low), float(up)), float(count)))
    for row, (name, value) in enumerate(marks):
        x = axes.point(value, 0.0)[0]
        y = axes.top + 10 + 13 * row
        parts.append(_upright(axes, "mark", x, y - 8))
        near_end = x > axes.left + 0.7 * axes.width
        parts.append(_text(x - 4 if near_end else x + 4, y, f"{name} {value:.1f}", "note end" if near_end else "note"))
    if budget_ms is not None and budget_ms <= high:
        x = axes.point(budget_ms, 0.0)[0]
        parts.append(_upright(axes, "limit", x, axes.top))
        parts.append(_text(x - 4, axes.top + axes.height - 6, "one step", "note end"))
    alt = (
        f"Histogram of {len(times_ms)} plan times: median {latency.p50:.1f} ms, 95 % below {latency.p95:.1f} ms, "
        f"99 % below {latency.p99:.1f} ms, longest {latency.max:.1f} ms."
    )
    return _svg(alt, parts)


def cost_chart(histories: Sequence[Sequence[float]]) -> str:
    """Returns what the planner's iterations gain: the best cost so far as a share of the first iteration's.

    The line is the median of all plans, the band their middle 80 %. Plans whose first cost is not positive have no
    share and are left out; the text says how many are shown.
    """
    shares = [[100 * cost / history[0] for cost in history] for history in histories if history[0] > 0] or [[100.0]]
    low, median, high = quantiles_over_steps(shares)
    axes = _axes((1.0, max(2.0, float(len(median)))), span(high))
    steps = range(1, len(median) + 1)
    band = axes.points(steps, high) + axes.points(steps, low)[::-1]
    parts = [
        f'<polygon class="band" points="{_points(band)}"/>',
        _grid(axes, "planner iteration", "%", x_ticks=list(steps)),
        _line(axes, steps, median, "median"),
        *(f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>' for x, y in axes.points(steps, median)),
    ]
    alt = (
        f"Best cost over {len(median)} planner iterations as a share of the first, in {len(shares)} plans; "
        f"the median ends at {median[-1]:.0f} %."
    )
    return _svg(alt, parts)


def sparkline(result: EpisodeResult, success_distance: float | None) -> str:
    """Returns the distance over one episode as a small line without axes; the page says the same in words beside it."""
    values = [float(d) for d in result.distances]
    axes = Axes(2, 2, 116, 28, (0.0, max(1.0, len(values) - 1)), span(values, least=2 * (success_distance or 0.0)))
    band = ""
    if success_distance:
        top = axes.point(0, success_distance)[1]
        band = f'<rect class="solved-band" x="2" y="{top:.1f}" width="116" height="{30 - top:.1f}"/>'
    line = _line(axes, range(len(values)), values, "median" if result.success_last else "median lost")
    return f'<svg class="spark" viewBox="0 0 120 32" aria-hidden="true">{band}{line}</svg>'


def _axes(x: tuple[float, float], y: tuple[float, float]) -> Axes:
    return Axes(LEFT, TOP, WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM, x, y)


def _grid(axes: Axes, x_title: str, y_title: str, x_ticks: Sequence[float] | None = None) -> str:
    right, bottom = axes.left + axes.width, axes.top + axes.height
    parts = []
    for value in nice_ticks(*axes.y, 4):
        y = axes.point(axes.x[0], value)[1]
        parts.append(f'<line class="grid" x1="{axes.left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(_text(axes.left - 6, y + 4, tick_label(value), "tick end"))
    for value in nice_ticks(*axes.x, 5) if x_ticks is None else x_ticks:
        parts.append(_text(axes.point(value, axes.y[0])[0], bottom + 15, tick_label(value), "tick middle"))
    parts.append(_text(right, bottom + 31, x_title, "tick end"))
    parts.append(_text(axes.left - 6, axes.top - 5, y_title, "tick end"))
    return "".join(parts)


def _line(axes: Axes, xs: Iterable[float], ys: Iterable[float], css: str) -> str:
    return f'<polyline class="line {css}" points="{_points(axes.points(xs, ys))}"/>'


def _points(points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _box(axes: Axes, css: str, x: tuple[float, float], y: float) -> str:
    """A bar from the axis up to `y`."""
    (left, top), (right, bottom) = axes.point(x[0], y), axes.point(x[1], 0.0)
    return f'<rect class="{css}" x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" height="{bottom - top:.1f}"/>'


def _upright(axes: Axes, css: str, x: float, top: float) -> str:
    return f'<line class="{css}" x1="{x:.1f}" x2="{x:.1f}" y1="{top:.1f}" y2="{axes.top + axes.height:.1f}"/>'


def _text(x: float, y: float, text: str, css: str) -> str:
    return f'<text class="{css}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'


def _svg(alt: str, parts: Iterable[str]) -> str:
    about = f'role="img" aria-label="{escape(alt)}"'
    return f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" {about}>{"".join(parts)}</svg>'


def _seconds(curve: Sequence[float], dt_s: float) -> list[float]:
    return [dt_s * i for i in range(len(curve))]


def _median_mm(episodes: Sequence[EpisodeResult]) -> list[float]:
    return quantiles_over_steps([[1e3 * float(d) for d in e.distances] for e in episodes], (0.5,))[0]
