"""The evaluation on a terminal: live progress while it runs, and a table at its end."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from mstar_plan.evaluation.records import EpisodeResult, EvaluationReport
from mstar_plan.evaluation.report_data import summary
from mstar_plan.evaluation.statistics import Latency


class LiveProgress:
    """One line an evaluation, with the success so far and the plan time; lines of finished ones stay.

    Use it as a context manager around one or more evaluations.

    Args:
        console: Where to draw; the standard error stream by default, so that standard output stays clean.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._bars = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[so_far]}"),
            TimeElapsedColumn(),
            console=console or Console(stderr=True),
        )
        self._task = TaskID(0)
        self._solved, self._done = 0, 0
        self._plan_ms: list[float] = []

    def __enter__(self) -> LiveProgress:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def begin(self, label: str, episodes: int) -> None:
        """Adds a line."""
        self._solved, self._done, self._plan_ms = 0, 0, []
        self._task = self._bars.add_task(label, total=episodes, so_far="")

    def advance(self, result: EpisodeResult) -> None:
        """Counts an episode."""
        self._done += 1
        self._solved += result.success_last
        self._plan_ms += result.plan_ms
        so_far = f"solved {self._solved}/{self._done} = {self._solved / self._done:.0%}"
        self._bars.update(self._task, advance=1, so_far=f"{so_far}, plan {Latency.of(self._plan_ms).p50:.1f} ms")

    def end(self) -> None:
        """Leaves the line as it is."""
        self._bars.stop_task(self._task)


def summary_table(reports: Sequence[EvaluationReport]) -> Table:
    """Returns the table that an evaluation ends with: success and its interval, distance, plan times, control rate."""
    table = Table(
        title="Closed-loop results", title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )
    table.add_column("task", min_width=5)
    table.add_column("controller", min_width=10)
    for heading in ("solved", "rate", "95 %\ninterval", "final\ndistance", "plan ms\np50/p95/p99", "control\nrate"):
        table.add_column(heading, justify="right", no_wrap=True)
    for report in reports:
        table.add_row(*_row(report))
    return table


def controller_label(report: EvaluationReport) -> str:
    """Returns who was in control, such as `cem (grpc)`, `cem (local, real time)` or `random`."""
    how = ", real time" if report.real_time else ""
    if report.planner:
        return f"{report.planner} ({report.controller}{how})"
    return f"{report.controller}{how}"


def _row(report: EvaluationReport) -> list[str | Text]:
    numbers = summary(report.episodes)
    low, high = numbers["success_ci95"]
    rate, times, hz = numbers["success_rate"], numbers["plan_ms"], numbers["control_hz"]
    solved = sum(e.success_last for e in report.episodes)
    late = f"\n{numbers['late_steps']} late" if report.real_time else ""
    return [
        report.env,
        controller_label(report),
        f"{solved}/{len(report.episodes)}",
        Text(f"{rate:.0%}", style="green" if rate >= 0.85 else "yellow" if rate >= 0.5 else "red"),
        f"{100 * low:.0f}-{high:.0%}",
        f"{1e3 * numbers['final_distance_mean']:.1f} mm",
        "/".join(f"{times[k]:.1f}" if times[k] is not None else "-" for k in ("p50", "p95", "p99")),
        f"{hz:.{0 if hz >= 100 else 1}f} Hz{late}" if hz else "-",
    ]
