"""Goal-conditioned Gymnasium tasks in MuJoCo: `gym.make("envs:mstar/Reach-v0")`, `Wall-v0` and `Push-v0`."""

from __future__ import annotations

import os
import sys

import gymnasium

if sys.platform == "linux":
    # MuJoCo chooses its GL when first imported, and its own default needs a display. A choice of the user stays.
    os.environ.setdefault("MUJOCO_GL", "egl")
    # Mesa's software GL draws small pictures faster in the calling thread, and then takes no core from the planner.
    os.environ.setdefault("LP_NUM_THREADS", "0")

TASKS = {
    "mstar/Reach-v0": ("envs.reach:ReachEnv", 30),
    "mstar/Wall-v0": ("envs.wall:WallEnv", 40),
    "mstar/Push-v0": ("envs.push:PushEnv", 40),
}

for _id, (_entry_point, _max_steps) in TASKS.items():
    gymnasium.register(id=_id, entry_point=_entry_point, max_episode_steps=_max_steps)

__all__ = ["TASKS"]
