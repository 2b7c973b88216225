"""`mstar-plan demo`: one server, three robots, a table, videos and a report."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import typer
from rich.console import Console

from mstar_plan.commands.controllers import open_controller
from mstar_plan.commands.evaluate import EvaluationConfig, add_video, controlling, run_evaluation
from mstar_plan.commands.output import make_folder
from mstar_plan.commands.server_process import ServerProcess
from mstar_plan.config import load
from mstar_plan.errors import ConfigError
from mstar_plan.evaluation.console import LiveProgress, summary_table
from mstar_plan.evaluation.records import EvaluationReport
from mstar_plan.evaluation.report import NEXT_STEPS, write_reports


@dataclass(frozen=True)
class DemoConfig:
    """What to show.

    Attributes:
        tasks: Files in `conf/task/` with an environment.
        episodes: Of each task; the first one becomes a video.
        seed: Seed of the first episode.
        out: Folder of the report and the videos.
    """

    tasks: tuple[str, ...]
    episodes: int = 10
    seed: int = 100
    out: Path = Path("runs/demo")

    def __post_init__(self) -> None:
        if not self.tasks or len(set(self.tasks)) != len(self.tasks):
            raise ConfigError(f"tasks is {list(self.tasks)}; name at least one, each once", field="tasks")


def demo(words: Sequence[str]) -> None:
    """Drives each task through a real server, and a random controller beside it."""
    config = load("demo", words, DemoConfig)
    evaluations = [_evaluation(task, config) for task in config.tasks]
    make_folder(config.out)
    typer.echo(f"starting the planning server with {', '.join(config.tasks)}", err=True)
    with ServerProcess([f"models=[{','.join(config.tasks)}]"]) as address, LiveProgress() as progress:
        planned = [_run(each, address, progress) for each in evaluations]
        random = [_run(replace(each, controller="random", record=0), "", progress) for each in evaluations]
    planned = [add_video(report, each) for report, each in zip(planned, evaluations, strict=True)]
    reports = [*planned, *random]
    write_reports(reports, config.out, title="Three robots, planned for by world models")
    Console().print(summary_table(reports))
    _say_what_is_there(config.out, planned)


def _evaluation(task: str, config: DemoConfig) -> EvaluationConfig:
    words = [f"env={task}", f"episodes={config.episodes}", f"seed={config.seed}", "record=1", f"out={config.out}"]
    return load("evaluate", words, EvaluationConfig)


def _run(config: EvaluationConfig, address: str, progress: LiveProgress) -> EvaluationReport:
    with contextlib.ExitStack() as stack:
        opened = open_controller(config.controller, config.env, config, controlling(config), address=address)
        return run_evaluation(config, stack.enter_context(opened), progress)


def _say_what_is_there(out: Path, reports: Sequence[EvaluationReport]) -> None:
    typer.echo(f"\n{out / 'report.html'}    the whole story; numbers in report.json")
    for report in reports:
        if report.video:
            typer.echo(f"{out / report.video}    camera, goal, prediction and cost")
    typer.echo("\nNext:")
    for step in NEXT_STEPS:
        typer.echo(f"  {step.command:56} # {step.why}")
