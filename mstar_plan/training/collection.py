"""Collection of episodes in parallel MuJoCo processes; a second call takes up where the first was stopped."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from mstar_plan.errors import ConfigError, InvalidInputError, did_you_mean
from mstar_plan.training.collect_worker import ShardJob, collect_shard
from mstar_plan.training.processes import run_jobs

ENVIRONMENTS: Mapping[str, str] = {
    "reach": "envs:mstar/Reach-v0",
    "wall": "envs:mstar/Wall-v0",
    "push": "envs:mstar/Push-v0",
}
MANIFEST = "collection.json"


@dataclass(frozen=True)
class CollectConfig:
    """What to collect, and where to.

    Attributes:
        env: reach, wall or push.
        out: Folder of the shards; data/ENV-sSEED-EPISODESxSTEPS by default.
        episodes: E in all.
        steps: T, actions an episode.
        seed: Seed of starts and exploration.
        shard_episodes: Episodes a shard.
        processes: MuJoCo processes; 0 takes one a core.
    """

    env: str = "reach"
    out: Path | None = None
    episodes: int = 1200
    steps: int = 40
    seed: int = 0
    shard_episodes: int = 50
    processes: int = 0

    def __post_init__(self) -> None:
        if self.env not in ENVIRONMENTS:
            raise ConfigError(f"env is {self.env!r}{did_you_mean(self.env, ENVIRONMENTS)}", field="env")
        for name in ("episodes", "steps", "shard_episodes"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; it needs at least 1", field=name)
        for name in ("seed", "processes"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} is {getattr(self, name)}; it needs at least 0", field=name)

    @property
    def folder(self) -> Path:
        """Where the shards go."""
        return self.out or Path("data") / f"{self.env}-s{self.seed}-{self.episodes}x{self.steps}"


def collect(config: CollectConfig) -> Path:
    """Collects what is not there yet and returns the folder.

    The data are a function of the configuration's env, episodes, steps and seed alone, not of the number of processes.

    Raises:
        InvalidInputError: The folder holds shards of another configuration.
        UnavailableError: A collecting process was killed.
    """
    config.folder.mkdir(parents=True, exist_ok=True)
    _claim(config)
    jobs = [job for job in _jobs(config) if not job.path.is_file()]
    columns = (TextColumn("collect {task.fields[env]}"), BarColumn(), MofNCompleteColumn(), TextColumn("episodes"))
    with Progress(*columns, TimeRemainingColumn()) as progress:
        done = config.episodes - sum(job.episodes for job in jobs)
        task = progress.add_task("collect", total=config.episodes, completed=done, env=config.env)
        workers = config.processes or os.cpu_count() or 1
        run_jobs(collect_shard, jobs, workers=workers, done=lambda job: progress.advance(task, job.episodes))
    return config.folder


def _jobs(config: CollectConfig) -> list[ShardJob]:
    starts = range(0, config.episodes, config.shard_episodes)
    return [
        ShardJob(
            env_id=ENVIRONMENTS[config.env],
            path=config.folder / f"shard-{i:05d}.npz",
            seed=config.seed,
            first=first,
            episodes=min(config.shard_episodes, config.episodes - first),
            steps=config.steps,
        )
        for i, first in enumerate(starts)
    ]


def _claim(config: CollectConfig) -> None:
    """Writes down whose folder it is; another configuration's folder is refused."""
    asked = {name: value for name, value in asdict(config).items() if name not in ("out", "processes")}
    manifest = config.folder / MANIFEST
    if manifest.is_file():
        found = json.loads(manifest.read_text())
        if found != asked:
            raise InvalidInputError(f"{config.folder} holds {found}, not {asked}; choose another out=", field="out")
        return
    if any(config.folder.glob("shard-*.npz")):
        raise InvalidInputError(f"{config.folder} holds shards but no {MANIFEST}; choose another out=", field="out")
    manifest.write_text(json.dumps(asked, indent=1) + "\n")
