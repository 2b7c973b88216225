"""Writes an evaluation for people and programs: report.json, and report.html, one page that needs nothing else."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from markupsafe import Markup
from PIL import Image

from mstar_plan.errors import InvalidInputError
from mstar_plan.evaluation.console import controller_label
from mstar_plan.evaluation.plots import cost_chart, distance_chart, latency_chart, sparkline
from mstar_plan.evaluation.records import EpisodeResult, EvaluationReport
from mstar_plan.evaluation.report_data import SCHEMA_VERSION, report_json, summary
from mstar_plan.types import ImageArray

MAX_STRIPS = 60  # episodes shown with pictures; the lost ones come first
BASELINES = ("random", "noop", "oracle")  # controllers that others are compared with


@dataclass(frozen=True)
class NextStep:
    """Something to try after reading the report.

    Attributes:
        command: What to type.
        why: What it shows.
    """

    command: str
    why: str


NEXT_STEPS = (
    NextStep("mstar-plan evaluate env=push episodes=100 seed=5000", "more episodes, narrower interval"),
    NextStep("mstar-plan evaluate env=reach planner=mppi", "another planner on the same model"),
    NextStep("mstar-plan evaluate env=wall controller=local", "the same plans without the network"),
    NextStep("mstar-plan train env=reach", "make the weights anew"),
)


def write_reports(
    reports: Sequence[EvaluationReport],
    folder: Path,
    *,
    title: str = "Closed-loop evaluation",
    next_steps: Sequence[NextStep] = NEXT_STEPS,
) -> None:
    """Writes `report.json` and `report.html` into `folder`, which is made if it is not there.

    One report gives one JSON object; several give `{"schema_version", "machine", "versions", "reports": [...]}`.

    Args:
        reports: What was evaluated; of each environment the first that is no baseline is shown in detail.
        folder: Where to write; videos are linked by their names and belong there too.
        title: Heading of the page.
        next_steps: What the page proposes at its end.

    Raises:
        InvalidInputError: No report.
    """
    if not reports:
        raise InvalidInputError("there is no evaluation to report; run at least one")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").write_text(json.dumps(reports_json(reports), indent=2, allow_nan=False) + "\n")
    (folder / "report.html").write_text(page(reports, folder, title=title, next_steps=next_steps), encoding="utf-8")


def reports_json(reports: Sequence[EvaluationReport]) -> dict[str, Any]:
    """Returns what report.json holds."""
    if len(reports) == 1:
        return report_json(reports[0])
    rows = [report_json(report) for report in reports]
    shared = {name: rows[-1][name] for name in ("machine", "versions")}
    return {"schema_version": SCHEMA_VERSION, **shared, "reports": rows}


def page(reports: Sequence[EvaluationReport], folder: Path, *, title: str, next_steps: Sequence[NextStep]) -> str:
    """Returns report.html; posters of videos are read from `folder`."""
    template = resources.files("mstar_plan.evaluation") / "templates" / "report.html.j2"
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    environment.filters |= {"percent": _percent, "mm": _millimetres, "ms": _milliseconds}
    return environment.from_string(template.read_text(encoding="utf-8")).render(
        title=title,
        rows=[_row(report) for report in reports],
        tasks=[_task(env, reports, folder) for env in dict.fromkeys(report.env for report in reports)],
        machine=reports[-1].machine,
        versions=reports[-1].versions,
        next_steps=next_steps,
    )


def _row(report: EvaluationReport) -> dict[str, Any]:
    solved = sum(e.success_last for e in report.episodes)
    return {
        "env": report.env,
        "who": controller_label(report),
        "model": report.model,
        "baseline": report.controller in BASELINES,
        "real_time": report.real_time,
        "solved": solved,
        "episodes": len(report.episodes),
        "seeds": f"{report.episodes[0].seed} to {report.episodes[-1].seed}",
        **summary(report.episodes),
    }


def _task(env: str, reports: Sequence[EvaluationReport], folder: Path) -> dict[str, Any]:
    """Returns what the section of one environment shows."""
    here = [report for report in reports if report.env == env]
    main = next((report for report in here if report.controller not in BASELINES), here[0])
    baselines = [(r.controller, r.episodes) for r in here if r is not main and r.controller in BASELINES]
    times = [t for e in main.episodes for t in e.plan_ms]
    histories = [h for e in main.episodes for h in e.cost_histories if h]
    charts = [("Distance to the goal", distance_chart(main.episodes, main.success_distance, baselines))]
    if times:
        charts.append(("Time of a plan", latency_chart(times, 1e3 * main.episodes[0].dt_s)))
    if histories:
        charts.append(("Cost left after each iteration", cost_chart(histories)))
    shown = sorted(main.episodes, key=lambda e: e.success_last)[:MAX_STRIPS]
    return {
        **_row(main),
        "success_distance": main.success_distance,
        "settings": main.settings,
        "charts": [(name, Markup(svg)) for name, svg in charts],
        "video": main.video,
        "poster": _poster(folder, main.video),
        "shown": [_episode(e, main.success_distance) for e in sorted(shown, key=lambda e: e.seed)],
        "left_out": len(main.episodes) - len(shown),
    }


def _episode(result: EpisodeResult, success_distance: float | None) -> dict[str, Any]:
    return {
        "seed": result.seed,
        "solved": result.success_last,
        "any": result.success_any,
        "final": result.final_distance,
        "late": result.late_steps,
        "spark": Markup(sparkline(result, success_distance)),
        "strip": _data_uri(np.concatenate(list(result.strip[:-1]), axis=1)),
        "goal": _data_uri(result.strip[-1]),
        "frames": len(result.strip) - 1,
    }


def _poster(folder: Path, video: str) -> str:
    poster = (folder / video).with_suffix(".jpg") if video else None
    if poster is None or not poster.exists():
        return ""
    return f"data:image/jpeg;base64,{base64.b64encode(poster.read_bytes()).decode()}"


def _data_uri(pixels: ImageArray) -> str:
    buffer = io.BytesIO()
    Image.fromarray(pixels).quantize(64).save(buffer, "PNG", optimize=True)  # the scenes have few colours
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _percent(value: float) -> str:
    return f"{100 * value:.0f} %"


def _millimetres(value: float) -> str:
    length = 1e3 * value
    return f"{f'{length:.1f}'.removesuffix('.0')} mm"


def _milliseconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
