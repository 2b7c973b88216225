"""Demonstrations in the toy world by whoever knows it: straight to the goal at full speed, then still."""

from __future__ import annotations

import numpy as np

from mstar_plan.models.toy import DT_S, best_plan, render
from mstar_plan.training.flow_policy.demonstrations import Demonstrations

META = {
    "env": "toy",
    "dt_s": DT_S,
    "action": {"low": [-1.0, -1.0], "high": [1.0, 1.0], "names": ["velocity_x", "velocity_y"], "units": ["1/s", "1/s"]},
}


def toy_demonstrations(count: int = 8, steps: int = 6, seed: int = 0) -> Demonstrations:
    """E episodes of T steps; starts and goals lie anywhere."""
    rng = np.random.default_rng(seed)
    starts, goals = rng.uniform(-0.8, 0.8, (2, count, 2)).astype(np.float32)
    actions = np.stack([best_plan(start, goal, steps) for start, goal in zip(starts, goals, strict=True)])
    moved = np.concatenate([np.zeros((count, 1, 2), np.float32), DT_S * actions.cumsum(1)], 1)
    frames = np.stack([[render(place) for place in episode] for episode in starts[:, None] + moved])
    pictures = np.stack([render(goal) for goal in goals])
    return Demonstrations(frames, pictures, actions, np.arange(count, dtype=np.int64), META)
