"""Push: with a disc, push a puck to where the goal image has it."""

from __future__ import annotations

from typing import ClassVar

import mujoco
import numpy as np

from envs.exploration import Behaviour, OrnsteinUhlenbeck, Vector
from envs.goal_env import DT_S, SUBSTEPS, GoalEnv
from envs.pushing import CONTACT_M, ScriptedPusher

GOAL_STEPS = 16  # a goal is where the scripted pusher has the puck after so many steps
MIN_PUCK_TRAVEL_M = 0.06
PUSHER_RANGE_M, PUCK_START_M = 0.18, 0.13  # start positions lie in [-range, range]


class PushEnv(GoalEnv):
    """The puck is to come within 0.022 m of where the goal image has it: 5 % of the arena's 0.44 m.

    Where the pusher ends is not scored. State: the pusher's position (m) and velocity (m/s), x then y. The task
    position is the puck's.
    """

    scene = "push.xml"
    success_distance = 0.022
    action_names: ClassVar[tuple[str, ...]] = ("velocity_x", "velocity_y")
    action_units: ClassVar[tuple[str, ...]] = ("0.3 m/s", "0.3 m/s")
    goal_limit = 0.22
    state_limit: ClassVar[tuple[float, ...]] = (0.22, 0.22, 2.0, 2.0)

    def _draw_episode(self, rng: np.random.Generator) -> tuple[Vector, Vector]:
        while True:
            start = _draw_start(rng)
            goal = self._after_pushing(rng, start)
            if np.linalg.norm(goal[2:] - start[2:]) > MIN_PUCK_TRAVEL_M:
                return start, goal

    def _after_pushing(self, rng: np.random.Generator, start: Vector) -> Vector:
        """Returns the joint positions [4] that `GOAL_STEPS` of the scripted pusher lead to, from rest at `start`."""
        pusher = ScriptedPusher(rng, float(self.full_speed[0]) * DT_S)
        self._place(self._scratch, start)
        for _ in range(GOAL_STEPS):
            action = np.clip(pusher(rng, self._scratch.qpos.copy()), -1.0, 1.0)
            self._scratch.ctrl[:] = action * self.full_speed
            mujoco.mj_step(self.model, self._scratch, SUBSTEPS)
        return self._scratch.qpos.copy()

    def _task_position(self, qpos: Vector) -> Vector:
        return qpos[..., 2:4].copy()

    def _proprioception(self) -> Vector:
        return np.concatenate([self.data.qpos[:2], self.data.qvel[:2]])

    def _draw_behaviour(self, rng: np.random.Generator) -> Behaviour:
        if rng.random() < 0.3:
            return OrnsteinUhlenbeck(rng)
        return ScriptedPusher(rng, float(self.full_speed[0]) * DT_S)


def _draw_start(rng: np.random.Generator) -> Vector:
    while True:
        pusher = rng.uniform(-PUSHER_RANGE_M, PUSHER_RANGE_M, size=2)
        puck = rng.uniform(-PUCK_START_M, PUCK_START_M, size=2)
        if np.linalg.norm(pusher - puck) > CONTACT_M + 0.01:
            return np.concatenate([pusher, puck])
