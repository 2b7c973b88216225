"""Runs the episodes of an evaluation, in this process or in several, with seeds that follow from the first."""

from __future__ import annotations

import contextlib
import multiprocessing
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from mstar_plan.errors import InvalidInputError
from mstar_plan.evaluation.episode import Env, EpisodeConfig, run_episode
from mstar_plan.evaluation.machine import describe_machine, gl_renderer, package_versions
from mstar_plan.evaluation.records import EpisodeResult, EvaluationReport
from mstar_plan.types import Controller

MakeEnv = Callable[[], Env]
MakeController = Callable[[Env], Controller]  # gets the environment, because an oracle needs it


class Progress(Protocol):
    """Who wants to know how an evaluation is going."""

    def begin(self, label: str, episodes: int) -> None:
        """An evaluation of so many episodes starts."""
        ...

    def advance(self, result: EpisodeResult) -> None:
        """One more episode is over."""
        ...

    def end(self) -> None:
        """The evaluation is over, well or not."""
        ...


@dataclass(frozen=True)
class EvaluateConfig:
    """What to evaluate, and how; names are for the report only.

    Attributes:
        env, model, planner, controller: Names of what is evaluated.
        episodes: Number of episodes.
        seed: Seed of the first one; episode i has `seed` + i.
        processes: Worker processes; each makes an environment and a controller of its own. 1: this process. Latencies
            are comparable only where every process has a core of its own.
        record: How many episodes, the first ones, keep every frame and plan for a video.
        episode: How each one is run.
        settings: Further settings to keep in the report.
        device: Where the model runs, for the report.
    """

    env: str
    model: str = ""
    planner: str = ""
    controller: str = "local"
    episodes: int = 20
    seed: int = 0
    processes: int = 1
    record: int = 1
    episode: EpisodeConfig = field(default_factory=EpisodeConfig)
    settings: Mapping[str, Any] = field(default_factory=dict)
    device: str | None = None

    def __post_init__(self) -> None:
        for name, least in (("episodes", 1), ("processes", 1), ("seed", 0), ("record", 0)):
            value = getattr(self, name)
            if value < least:
                raise InvalidInputError(f"{name} is {value}; it needs at least {least}", field=name)

    @property
    def label(self) -> str:
        """The evaluation in a few words."""
        return " · ".join(part for part in (self.env, self.model or self.controller, self.planner) if part)


def evaluate(
    make_env: MakeEnv,
    make_controller: MakeController,
    config: EvaluateConfig,
    progress: Progress | None = None,
) -> EvaluationReport:
    """Runs all episodes and returns them with the machine that they were run on.

    Args:
        make_env: Makes the environment, `lambda: gymnasium.make("envs:mstar/Reach-v0")` for one. With several
            processes both makers are sent to them, and so must be picklable: functions of a module, or
            `functools.partial` of them.
        make_controller: Makes the controller, or returns one that is there already.
        config: What to run.
        progress: Told of every episode as it ends.

    Raises:
        InvalidInputError: The environment lacks what `run_episode` needs.
    """
    run = _run_here if config.processes == 1 else _run_in_processes
    results: list[EpisodeResult] = []
    about: dict[str, Any] = {}
    if progress is not None:
        progress.begin(config.label, config.episodes)
    try:
        for result in run(make_env, make_controller, config, about):
            results.append(result)
            if progress is not None:
                progress.advance(result)
    finally:
        if progress is not None:
            progress.end()
    return EvaluationReport(
        env=config.env,
        model=config.model,
        planner=config.planner,
        controller=config.controller,
        seed=config.seed,
        episodes=tuple(sorted(results, key=lambda result: result.seed)),
        success_distance=about["success_distance"],
        real_time=config.episode.real_time,
        settings=dict(config.settings),
        machine=describe_machine(device=config.device, gl=about["gl"]),
        versions=package_versions(),
    )


def _run_here(
    make_env: MakeEnv, make_controller: MakeController, config: EvaluateConfig, about: dict[str, Any]
) -> Iterator[EpisodeResult]:
    with contextlib.closing(make_env()) as env:
        controller = make_controller(env)
        for index in range(config.episodes):
            yield _run_one(env, controller, config, index)
        about |= _about(env)


def _run_in_processes(
    make_env: MakeEnv, make_controller: MakeController, config: EvaluateConfig, about: dict[str, Any]
) -> Iterator[EpisodeResult]:
    # "spawn": a fork would copy GL contexts, gRPC channels and locks that only work where they were made.
    context = multiprocessing.get_context("spawn")
    workers = min(config.processes, config.episodes)
    with ProcessPoolExecutor(workers, context, initializer=_Worker.start, initargs=(make_env, make_controller)) as pool:
        waiting: list[Future[EpisodeResult]] = [pool.submit(_Worker.run, config, i) for i in range(config.episodes)]
        try:
            for done in as_completed(waiting):
                yield done.result()
            about |= pool.submit(_Worker.about).result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _run_one(env: Env, controller: Controller, config: EvaluateConfig, index: int) -> EpisodeResult:
    episode = replace(config.episode, record=config.episode.record or index < config.record)
    return run_episode(env, controller, config.seed + index, episode)


def _about(env: Env) -> dict[str, Any]:
    return {"success_distance": getattr(env.unwrapped, "success_distance", None), "gl": gl_renderer()}


class _Worker:
    """What a worker process holds from its first episode to its last: one environment, one controller."""

    env: Env
    controller: Controller

    @classmethod
    def start(cls, make_env: MakeEnv, make_controller: MakeController) -> None:
        cls.env = make_env()
        cls.controller = make_controller(cls.env)

    @classmethod
    def run(cls, config: EvaluateConfig, index: int) -> EpisodeResult:
        return _run_one(cls.env, cls.controller, config, index)

    @classmethod
    def about(cls) -> dict[str, Any]:
        return _about(cls.env)
