"""Reach: bring the tip of a planar two-link arm to where another pose has it."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from envs.exploration import Behaviour, OrnsteinUhlenbeck, TargetSeeker, Vector
from envs.goal_env import DT_S, GoalEnv

UPPER_M, LOWER_M = 0.13, 0.12  # lengths of the links, as in assets/reach.xml
ELBOW_LIMIT = 2.55  # rad; just inside the joint's range
MIN_TIP_TRAVEL_M = 0.1  # between the tips of start and goal


class ReachEnv(GoalEnv):
    """The arm's tip is to come within 0.025 m of the goal tip: 5 % of the workspace's 0.5 m.

    The joint angles are not scored. State: shoulder angle in [-pi, pi] and elbow angle (rad), and their velocities
    (rad/s).
    """

    scene = "reach.xml"
    success_distance = 0.025
    action_names: ClassVar[tuple[str, ...]] = ("shoulder", "elbow")
    action_units: ClassVar[tuple[str, ...]] = ("3 rad/s", "3 rad/s")
    goal_limit = 0.26
    state_limit: ClassVar[tuple[float, ...]] = (np.pi, 2.7, 12.0, 12.0)

    def _draw_episode(self, rng: np.random.Generator) -> tuple[Vector, Vector]:
        while True:
            start, goal = _draw_pose(rng), _draw_pose(rng)
            if np.linalg.norm(self._task_position(start) - self._task_position(goal)) > MIN_TIP_TRAVEL_M:
                return start, goal

    def _task_position(self, qpos: Vector) -> Vector:
        shoulder, both = qpos[..., 0], qpos[..., 0] + qpos[..., 1]
        x = UPPER_M * np.cos(shoulder) + LOWER_M * np.cos(both)
        y = UPPER_M * np.sin(shoulder) + LOWER_M * np.sin(both)
        return np.stack([x, y], axis=-1)

    def _proprioception(self) -> Vector:
        angles = self.data.qpos.copy()
        angles[0] = np.arctan2(np.sin(angles[0]), np.cos(angles[0]))
        return np.concatenate([angles, self.data.qvel])

    def _draw_behaviour(self, rng: np.random.Generator) -> Behaviour:
        if rng.random() < 0.4:
            return OrnsteinUhlenbeck(rng)
        return TargetSeeker(rng, float(self.full_speed[0]) * DT_S, _draw_target, lambda target, qpos: target - qpos)


def _draw_pose(rng: np.random.Generator) -> Vector:
    return np.array([rng.uniform(-np.pi, np.pi), rng.uniform(-ELBOW_LIMIT, ELBOW_LIMIT)])


def _draw_target(rng: np.random.Generator, qpos: Vector) -> Vector:
    return np.array([qpos[0] + rng.uniform(-np.pi, np.pi), rng.uniform(-ELBOW_LIMIT, ELBOW_LIMIT)])
