"""What a collecting process does; it imports no torch, whose loading after a GL context can crash a process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from mstar_plan.training.shards import Episodes, write_shard


@dataclass(frozen=True)
class ShardJob:
    """One shard to collect: a function of these values alone.

    Attributes:
        env_id: Name for `gymnasium.make`.
        path: File to write.
        seed: Seed of the whole collection.
        first: Number of the shard's first episode.
        episodes: E.
        steps: T, actions an episode.
    """

    env_id: str
    path: Path
    seed: int
    first: int
    episodes: int
    steps: int


def collect_shard(job: ShardJob) -> int:
    """Collects and writes one shard; returns the number of frames."""
    env = gymnasium.make(job.env_id, max_episode_steps=job.steps)
    try:
        runs = [_run(env, job, job.first + i) for i in range(job.episodes)]
        arrays = {name: np.stack([run[name] for run in runs]) for name in runs[0]}
        write_shard(job.path, Episodes(**arrays, meta=_meta(env, job)))
    finally:
        env.close()
    return job.episodes * (job.steps + 1)


def _run(env: Any, job: ShardJob, number: int) -> dict[str, Any]:
    # Training episodes use seeds far above those that are evaluated on, so that no start or goal is shared.
    seed = 10**9 + 10**6 * job.seed + number
    rng = np.random.default_rng([job.seed, number])
    observation, _ = env.reset(seed=seed)
    seen, actions = [observation], []
    for _ in range(job.steps):
        action = env.unwrapped.explore(rng)
        observation, _, terminated, _, _ = env.step(action)
        assert not terminated, "episodes are of equal length"
        seen.append(observation)
        actions.append(action)
    return {
        "frames": np.stack([each["image"] for each in seen]),
        "actions": np.stack(actions).astype(np.float32),
        "states": np.stack([each["state"] for each in seen]).astype(np.float32),
        "positions": np.stack([each["achieved_goal"] for each in seen]),
        "seeds": np.int64(seed),
    }


def _meta(env: Any, job: ShardJob) -> dict[str, Any]:
    inner, space = env.unwrapped, env.action_space
    return {
        "env": job.env_id,
        "dt_s": 1.0 / inner.metadata["render_fps"],
        "success_distance_m": inner.success_distance,
        "action": {
            "low": space.low.tolist(),
            "high": space.high.tolist(),
            "names": list(inner.action_names),
            "units": list(inner.action_units),
        },
    }
