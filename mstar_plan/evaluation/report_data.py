"""The numbers of a report as plain JSON: what report.json holds, and what the page and the table are drawn from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from mstar_plan.evaluation.records import EpisodeResult, EvaluationReport
from mstar_plan.evaluation.statistics import Latency, wilson_interval

SCHEMA_VERSION = 1


def report_json(report: EvaluationReport) -> dict[str, Any]:
    """Returns the whole report as JSON values; docs/evaluation.md tells what each field means."""
    return {
        "schema_version": SCHEMA_VERSION,
        "env": report.env,
        "model": report.model,
        "planner": report.planner,
        "controller": report.controller,
        "episodes": len(report.episodes),
        "seed": report.seed,
        **summary(report.episodes),
        "success_distance_m": report.success_distance,
        "real_time": report.real_time,
        "settings": dict(report.settings),
        "video": report.video or None,
        "machine": dict(report.machine),
        "versions": dict(report.versions),
        "per_episode": [_episode_json(result) for result in report.episodes],
    }


def summary(episodes: Sequence[EpisodeResult]) -> dict[str, Any]:
    """Returns rates, distances (m), times (ms) and the control rate (Hz) over all episodes.

    The control rate is the number of actions that the controller gave, divided by the seconds that the loops ran:
    planning, physics and camera, and in real time also the waiting, so that it is at most 1 / dt there.
    """
    count = len(episodes)
    last, some = sum(e.success_last for e in episodes), sum(e.success_any for e in episodes)
    finals = [e.final_distance for e in episodes]
    steps, late = sum(e.steps for e in episodes), sum(e.late_steps for e in episodes)
    elapsed_s = sum(e.elapsed_s for e in episodes)
    statuses = [status for e in episodes for status in e.statuses]
    return {
        "success_rate": last / count,
        "success_ci95": list(wilson_interval(last, count)),
        "success_any_rate": some / count,
        "success_any_ci95": list(wilson_interval(some, count)),
        "final_distance_mean": float(np.mean(finals)),
        "final_distance_median": float(np.median(finals)),
        "plan_ms": {k: _number(v) for k, v in asdict(Latency.of([t for e in episodes for t in e.plan_ms])).items()},
        "control_hz": (steps - late) / elapsed_s if elapsed_s > 0 else None,
        "dt_s": episodes[0].dt_s,
        "steps": steps,
        "late_steps": late,
        "plan_status": {status: statuses.count(status) for status in sorted(set(statuses))},
    }


def _episode_json(result: EpisodeResult) -> dict[str, Any]:
    latency = Latency.of(result.plan_ms)
    return {
        "seed": result.seed,
        "success_last": result.success_last,
        "success_any": result.success_any,
        "final_distance": result.final_distance,
        "least_distance": float(result.distances.min()),
        "steps": result.steps,
        "late_steps": result.late_steps,
        "plan_ms_p50": _number(latency.p50),
        "plan_ms_max": _number(latency.max),
        "distances": [round(float(d), 6) for d in result.distances],
    }


def _number(value: float) -> float | None:
    """JSON knows neither NaN nor infinity; both become null."""
    return value if math.isfinite(value) else None
