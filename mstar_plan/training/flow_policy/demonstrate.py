"""The expert at work: the packaged planner solves episodes in parallel processes, and what it does is written down.

In some episodes noise is added to what is executed, while what the expert wanted is kept: so the policy sees how to
come back from mistakes (DART, Laskey et al. 2017, arXiv 1703.09327).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from mstar_plan.errors import ConfigError, InvalidInputError, did_you_mean
from mstar_plan.models.registry import load_model
from mstar_plan.rollout.cem import CEMConfig
from mstar_plan.rollout.controller import PlanningController
from mstar_plan.rollout.objective import ObjectiveConfig
from mstar_plan.rollout.plan_walk import plan_graph
from mstar_plan.rollout.solver import PlanSolver
from mstar_plan.runtime.runtime import Runtime
from mstar_plan.training.collection import ENVIRONMENTS
from mstar_plan.training.flow_policy.demonstrations import Demonstrations, write_demonstrations
from mstar_plan.training.processes import run_jobs
from mstar_plan.types import Controller, Goal, Observation

MANIFEST = "demonstrations.json"
FIRST_SEED = 2 * 10**9  # far above the seeds that are evaluated on, and those of the world models' episodes


@dataclass(frozen=True)
class DemonstrationConfig:
    """What the expert shows.

    Attributes:
        episodes: E in all.
        steps: T, actions an episode.
        noisy: Share of the episodes in which noise is added to what is executed.
        noise: Its standard deviation, as a fraction of the half range.
        planner: The expert's search, on the packaged world model of the task.
        objective: What a plan costs it.
        shard_episodes: Episodes a shard.
        processes: Processes at work; 0 takes one a core.
    """

    episodes: int = 600
    steps: int = 30
    noisy: float = 0.5
    noise: float = 0.3
    planner: CEMConfig = field(default_factory=lambda: CEMConfig(samples=64, iterations=4))
    objective: ObjectiveConfig = field(default_factory=lambda: ObjectiveConfig(minimum=1.0, mean=0.3))
    shard_episodes: int = 25
    processes: int = 0

    def __post_init__(self) -> None:
        for name, least in (("episodes", 2), ("steps", 1), ("shard_episodes", 1), ("processes", 0), ("noise", 0)):
            value = getattr(self, name)
            if not value >= least:
                raise ConfigError(f"demonstrations.{name} is {value}; it needs at least {least}", field=name)
        if not 0 <= self.noisy <= 1:
            raise ConfigError(f"demonstrations.noisy is {self.noisy}; it needs 0 to 1", field="noisy")


@dataclass(frozen=True)
class DemonstrationJob:
    """One shard: a function of these values alone.

    Attributes:
        task: Name of environment and world model.
        path: File to write.
        seed: Of the whole collection.
        first: Number of the shard's first episode.
        episodes: E of the shard.
        config: What the expert shows.
    """

    task: str
    path: Path
    seed: int
    first: int
    episodes: int
    config: DemonstrationConfig


def demonstrate(task: str, folder: Path, config: DemonstrationConfig, seed: int = 0) -> Path:
    """Collects what is not there yet and returns the folder.

    Raises:
        ConfigError: There is no such task.
        InvalidInputError: The folder holds demonstrations of another configuration.
        UnavailableError: A process was killed.
    """
    if task not in ENVIRONMENTS:
        raise ConfigError(f"task is {task!r}{did_you_mean(task, ENVIRONMENTS)}", field="env")
    folder.mkdir(parents=True, exist_ok=True)
    _claim(folder, task, config, seed)
    starts = range(0, config.episodes, config.shard_episodes)
    jobs = [
        DemonstrationJob(
            task,
            folder / f"shard-{i:05d}.npz",
            seed,
            first,
            min(config.shard_episodes, config.episodes - first),
            config,
        )
        for i, first in enumerate(starts)
    ]
    left = [job for job in jobs if not job.path.is_file()]
    columns = (TextColumn("demonstrate {task.fields[env]}"), BarColumn(), MofNCompleteColumn(), TextColumn("episodes"))
    with Progress(*columns, TimeRemainingColumn()) as progress:
        done = config.episodes - sum(job.episodes for job in left)
        bar = progress.add_task("demonstrate", total=config.episodes, completed=done, env=task)
        workers = config.processes or os.cpu_count() or 1
        run_jobs(write_shard, left, workers=workers, done=lambda job: progress.advance(bar, job.episodes))
    return folder


def write_shard(job: DemonstrationJob) -> int:
    """Lets the expert solve a shard's episodes and writes them; returns how many it solved at the last step."""
    torch.set_num_threads(1)
    import_module("torch._dynamo")  # a GL context that is made before its first import can crash it
    model = load_model(job.task)
    with Runtime(plan_graph(model, job.config.planner, job.config.objective)) as runtime:
        expert = PlanningController(PlanSolver(model.spec, runtime, job.config.planner))
        env = gymnasium.make(ENVIRONMENTS[job.task], max_episode_steps=job.config.steps)
        try:
            runs = [_run(env, expert, job, job.first + i) for i in range(job.episodes)]
            arrays = {name: np.stack([run[name] for run in runs]) for name in runs[0] if name != "solved"}
            write_demonstrations(job.path, Demonstrations(**arrays, meta=_meta(env, job)))
        finally:
            env.close()
    return sum(run["solved"] for run in runs)


def _run(env: Any, expert: Controller, job: DemonstrationJob, number: int) -> Mapping[str, Any]:
    seed = FIRST_SEED + 10**6 * job.seed + number
    rng = np.random.default_rng([job.seed, number])
    half = (env.action_space.high - env.action_space.low) / 2
    noise = job.config.noise if rng.random() < job.config.noisy else 0.0
    observation, info = env.reset(seed=seed)
    expert.reset(Goal(frame=observation["goal_image"]), seed=seed)
    goal, frames, actions = observation["goal_image"], [observation["image"]], []
    for _ in range(job.config.steps):
        wanted = expert.act(Observation(observation["image"][None]))
        executed = wanted + noise * half * rng.standard_normal(wanted.shape)
        clipped = np.clip(executed, env.action_space.low, env.action_space.high).astype(np.float32)
        observation, _, _, _, info = env.step(clipped)
        frames.append(observation["image"])
        actions.append(wanted)
    return {
        "frames": np.stack(frames),
        "goals": goal,
        "actions": np.stack(actions).astype(np.float32),
        "seeds": np.int64(seed),
        "solved": bool(info["is_success"]),
    }


def _meta(env: Any, job: DemonstrationJob) -> dict[str, Any]:
    inner, space = env.unwrapped, env.action_space
    return {
        "env": ENVIRONMENTS[job.task],
        "dt_s": 1.0 / inner.metadata["render_fps"],
        "action": {
            "low": space.low.tolist(),
            "high": space.high.tolist(),
            "names": list(inner.action_names),
            "units": list(inner.action_units),
        },
    }


def _claim(folder: Path, task: str, config: DemonstrationConfig, seed: int) -> None:
    """Writes down whose folder it is; another configuration's folder is refused."""
    asked = {"task": task, "seed": seed, **asdict(config)}
    del asked["processes"]
    asked = json.loads(json.dumps(asked))
    manifest = folder / MANIFEST
    if manifest.is_file():
        found = json.loads(manifest.read_text())
        if found != asked:
            raise InvalidInputError(f"{folder} holds {found}, not {asked}; choose another out=", field="out")
        return
    manifest.write_text(json.dumps(asked, indent=1) + "\n")
