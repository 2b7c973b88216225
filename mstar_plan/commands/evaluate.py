"""`mstar-plan evaluate`: closed-loop episodes of one controller in one task; a table, report.json and report.html."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from mstar_plan.build import PlanningConfig, Task, build_env, build_model, frame_encoder, pick_device
from mstar_plan.build_policy import PolicyConfig
from mstar_plan.commands.controllers import GOALS, PLANNING, ControllerName, open_controller
from mstar_plan.commands.output import make_folder
from mstar_plan.config import Section, load
from mstar_plan.errors import ConfigError
from mstar_plan.evaluation.console import LiveProgress, summary_table
from mstar_plan.evaluation.episode import EpisodeConfig
from mstar_plan.evaluation.records import EvaluationReport
from mstar_plan.evaluation.report import write_reports
from mstar_plan.evaluation.runner import EvaluateConfig, MakeController, Progress
from mstar_plan.evaluation.runner import evaluate as run_episodes
from mstar_plan.evaluation.video import write_video
from mstar_plan.rollout.controller_config import ControllerConfig
from mstar_plan.rollout.policy_solver import MODES


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig(PlanningConfig):
    """What to evaluate.

    Attributes:
        env: File in `conf/task/`: an environment, its model, and what the planner is tuned to.
        controller: `grpc` plans on a server, `local` in this process; `policy` does what a policy proposes, `rerank`
            the best of its proposals by the world model, `refine` searches from there; `random`, `noop` and `oracle`
            need no model.
        address: host:port of a running server; empty starts one for this evaluation.
        episodes: Number of episodes.
        seed: Seed of the first one; episode i has `seed` + i.
        real_time: The world does not wait for the plan.
        record: How many episodes, the first ones, go into a video.
        control: How plans become actions.
        policy: Who proposes, and how many.
        out: Folder of the report.
    """

    env: Annotated[Task, Section("task")]
    controller: ControllerName = "grpc"
    address: str = ""
    episodes: int = 20
    seed: int = 0
    real_time: bool = False
    record: int = 0
    control: ControllerConfig = field(default_factory=ControllerConfig)
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    out: Path = Path("runs/evaluate")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.address and self.controller != "grpc":
            what = f"address is {self.address!r}, but controller={self.controller} needs no server"
            raise ConfigError(f"{what}: drop one of the two", field="address")


def evaluate(words: Sequence[str]) -> None:
    """Runs the episodes, prints the table and writes the report."""
    config = load("evaluate", words, EvaluationConfig)
    make_folder(config.out)
    opened = open_controller(
        config.controller,
        config.env,
        config,
        controlling(config),
        words=words,
        address=config.address,
        policy=config.policy,
    )
    with opened as make_controller, LiveProgress() as progress:
        report = run_evaluation(config, make_controller, progress)
    report = add_video(report, config)
    write_reports([report], config.out)
    Console().print(summary_table([report]))
    typer.echo(f"report: {config.out / 'report.html'} and report.json")


def run_evaluation(
    config: EvaluationConfig, make_controller: MakeController, progress: Progress | None = None
) -> EvaluationReport:
    """Runs the episodes with a controller that is there."""
    planning, proposing = config.controller in PLANNING, config.controller in MODES
    model = config.policy.of(config.env) if proposing else config.env.model
    planner = config.controller if proposing else config.planner.planner
    return run_episodes(
        lambda: build_env(config.env),
        make_controller,
        EvaluateConfig(
            env=config.env.name,
            model=model if planning or proposing else "",
            planner=planner if planning or proposing else "",
            controller=config.controller,
            episodes=config.episodes,
            seed=config.seed,
            record=config.record,
            episode=EpisodeConfig(goal=GOALS[config.controller], real_time=config.real_time),
            settings=settings(config) if planning else proposals(config) if proposing else {},
            device=pick_device(config.device) if (planning and not config.address) or proposing else None,
        ),
        progress,
    )


def controlling(config: EvaluationConfig) -> ControllerConfig:
    """Returns how plans become actions; a video also shows what was predicted."""
    return replace(config.control, want_predicted=True) if config.record else config.control


def settings(config: EvaluationConfig) -> dict[str, Any]:
    """Returns what the report says about the search."""
    planner, control = config.planner, config.control
    return {
        "horizon": control.horizon or planner.horizon,
        "samples": control.samples or planner.samples,
        "iterations": control.iterations or planner.iterations,
        "weights": str(config.weights or "packaged"),
    }


def proposals(config: EvaluationConfig) -> dict[str, Any]:
    """Returns what the report says about a policy's proposals."""
    policy = config.policy
    found: dict[str, Any] = {"steps": policy.steps, "weights": str(policy.weights or "packaged")}
    if config.controller != "policy":
        found |= {"proposals": policy.proposals}
    if config.controller == "refine":
        found |= {"iterations": policy.iterations, "samples": policy.samples}
    return found


def add_video(report: EvaluationReport, config: EvaluationConfig) -> EvaluationReport:
    """Writes the video of the recorded episodes, if there are any; returns the report with its name."""
    if not config.record:
        return report
    encode = None
    if config.controller in PLANNING:
        encode = frame_encoder(build_model(config.env, replace(config, device="cpu")))
    return write_video(report, config.out, encode)
