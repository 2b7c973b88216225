"""Wall: move a point to the other side of a wall, where the straight line is blocked."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from envs.exploration import Behaviour, OrnsteinUhlenbeck, TargetSeeker, Vector
from envs.goal_env import DT_S, GoalEnv

WALL_END_M = 0.05  # y at which the wall ends and the passage begins, as in assets/wall.xml
PASSAGE = np.array([0.0, 0.2])  # m; a way through
BLOCKED_BY_M = 0.08  # the straight line meets the wall at least so far from its end
REACH_M = 0.45  # the point's centre stays in [-0.45, 0.45]


class WallEnv(GoalEnv):
    """The point is to come within 0.05 m of the goal: 5 % of the arena's 1 m.

    State: position (m) and velocity (m/s), x then y.
    """

    scene = "wall.xml"
    success_distance = 0.05
    action_names: ClassVar[tuple[str, ...]] = ("velocity_x", "velocity_y")
    action_units: ClassVar[tuple[str, ...]] = ("0.7 m/s", "0.7 m/s")
    goal_limit = 0.5
    state_limit: ClassVar[tuple[float, ...]] = (0.5, 0.5, 3.0, 3.0)

    def _draw_episode(self, rng: np.random.Generator) -> tuple[Vector, Vector]:
        side = rng.choice([-1.0, 1.0])
        while True:
            start = np.array([side * rng.uniform(0.18, 0.4), rng.uniform(-0.2, 0.05)])
            goal = np.array([-side * rng.uniform(0.18, 0.4), rng.uniform(-0.2, 0.05)])
            share = start[0] / (start[0] - goal[0])
            if start[1] + share * (goal[1] - start[1]) < WALL_END_M - BLOCKED_BY_M:
                return start, goal

    def _task_position(self, qpos: Vector) -> Vector:
        return qpos[..., :2].copy()

    def _proprioception(self) -> Vector:
        return np.concatenate([self.data.qpos, self.data.qvel])

    def _draw_behaviour(self, rng: np.random.Generator) -> Behaviour:
        if rng.random() < 0.35:
            return OrnsteinUhlenbeck(rng)
        routed = bool(rng.random() < 0.7)  # the others run into the wall, which must be learned too
        error = _way_round if routed else _straight
        return TargetSeeker(rng, float(self.full_speed[0]) * DT_S, _draw_target, error)


def _draw_target(rng: np.random.Generator, qpos: Vector) -> Vector:
    del qpos
    return rng.uniform(-REACH_M, REACH_M, size=2)


def _straight(target: Vector, qpos: Vector) -> Vector:
    return target - qpos


def _way_round(target: Vector, qpos: Vector) -> Vector:
    """Returns what is left to the target, or to the passage while the wall is between."""
    other_side = target[0] * qpos[0] < 0 and abs(qpos[0]) > 0.03
    low = min(target[1], qpos[1]) < WALL_END_M + 0.06
    return (PASSAGE if other_side and low else target) - qpos
