"""The charts are well-formed, say in words what they show, and hold as many marks as there are values."""

from xml.etree import ElementTree

import numpy as np
import pytest

from mstar_plan.evaluation.plots import cost_chart, distance_chart, latency_chart, sparkline


def _parse(svg):
    root = ElementTree.fromstring(svg)
    return root, lambda css: [e for e in root.iter() if css in e.get("class", "").split()]


def test_distance_chart_has_a_line_an_episode_and_the_median(result):
    solved, lost = result(), result(seed=1, distances=(0.3, 0.25, 0.2))
    root, find = _parse(distance_chart([solved, lost], 0.05, [("random", [lost])]))
    assert len(find("episode")) == 2
    assert len(find("lost")) == 1
    assert len(find("median")) == len(find("baseline")) == len(find("solved-band")) == 1
    assert "2 episodes" in root.get("aria-label")
    assert "falls from 300 to 105.0 mm; 1 episodes end unsolved" in root.get("aria-label")


def test_names_are_escaped(result):
    svg = distance_chart([result()], None, [("<b>&", [result()])])
    assert "<b>" not in svg
    _parse(svg)


def test_latency_bars_hold_all_times():
    times = list(np.linspace(10, 20, 57))
    root, find = _parse(latency_chart(times, budget_ms=40))
    heights = [float(bar.get("height")) for bar in find("bar")]
    assert len(find("mark")) == 3
    assert len(find("limit")) == 1
    assert sum(heights) / max(heights) == pytest.approx(57 / round(57 * max(heights) / sum(heights)), rel=0.1)
    assert "median 15.0 ms" in root.get("aria-label")
    assert not _parse(latency_chart(times, budget_ms=1e6))[1]("limit")  # too far away to show


def test_equal_times_and_zeros_are_charts_too():
    _parse(latency_chart([0.0, 0.0]))
    _parse(latency_chart([5.0]))


def test_costs_are_shares_of_the_first_iteration():
    root, find = _parse(cost_chart([(2.0, 1.0), (4.0, 1.0), (0.0, 0.0)]))
    assert len(find("dot")) == 2
    assert "in 2 plans" in root.get("aria-label")
    assert "ends at 38 %" in root.get("aria-label")


def test_costs_without_a_share_and_single_iterations_are_charts_too():
    _parse(cost_chart([(-1.0, -2.0)]))
    _parse(cost_chart([(3.0,)]))


def test_sparklines_are_hidden_from_readers_because_the_words_are_beside_them(result):
    root, find = _parse(sparkline(result(distances=(0.3, 0.2, 0.2)), 0.05))
    assert root.get("aria-hidden") == "true"
    assert len(find("lost")) == 1
