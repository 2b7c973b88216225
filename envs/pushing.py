"""A scripted pusher: it goes round the puck to a point behind it and pushes it to a random place, again and again."""

from __future__ import annotations

import numpy as np

from envs.exploration import Vector

CONTACT_M = 0.08  # between the centres of pusher and puck when they touch, as in assets/push.xml
STANDOFF_M = CONTACT_M + 0.012  # from where a push starts
DETOUR_M = CONTACT_M + 0.03  # while going round
PUCK_LIMIT_M, PUSHER_LIMIT_M = 0.165, 0.18  # where they can be and be got at
MAX_PUSH_STEPS, MAX_APPROACH_STEPS = 20, 25


class ScriptedPusher:
    """A behaviour for Push; each push has a random place to bring the puck to and a random speed.

    Args:
        rng: Source of the first push.
        reach: Metres that one step at full action covers.
        noise: Standard deviation of the noise on every action.
    """

    def __init__(self, rng: np.random.Generator, reach: float, noise: float = 0.25) -> None:
        self._reach = reach
        self._noise = noise
        self._target: Vector | None = None
        self._pushing = False
        self._speed = 1.0
        self._steps_left = 0
        self._approach_speed = rng.uniform(0.7, 1.0)

    def __call__(self, rng: np.random.Generator, qpos: Vector) -> Vector:
        """Returns the next action [2] for the positions (pusher x, y, puck x, y) in metres."""
        pusher, puck = qpos[:2], qpos[2:4]
        if self._target is None or self._steps_left <= 0 or np.linalg.norm(self._target - puck) < 0.015:
            self._begin(rng, puck)
        assert self._target is not None
        self._steps_left -= 1
        heading = _unit(self._target - puck)
        behind = pusher - puck
        lateral = behind - (behind @ heading) * heading
        if self._pushing and (behind @ heading > 0 or np.linalg.norm(lateral) > 0.6 * CONTACT_M):
            self._pushing, self._steps_left = False, MAX_APPROACH_STEPS  # it slipped off
        if not self._pushing and np.linalg.norm(behind + STANDOFF_M * heading) < 0.02:
            self._pushing, self._steps_left = True, MAX_PUSH_STEPS
        if self._pushing:
            action = self._speed * _unit(heading - 12.0 * lateral)
        else:
            step = (_waypoint(behind, heading) + puck - pusher) / self._reach
            action = self._approach_speed * step / max(1.0, float(np.linalg.norm(step)))
        return action + self._noise * rng.normal(size=2)

    def _begin(self, rng: np.random.Generator, puck: Vector) -> None:
        """Draws a place for the puck that it can be pushed to from inside the arena."""
        for _ in range(50):
            self._target = rng.uniform(-PUCK_LIMIT_M, PUCK_LIMIT_M, size=2)
            way = self._target - puck
            standoff = puck - STANDOFF_M * _unit(way)
            if np.linalg.norm(way) > 0.06 and np.abs(standoff).max() < PUSHER_LIMIT_M:
                break
        self._pushing, self._steps_left = False, MAX_APPROACH_STEPS
        self._speed = rng.uniform(0.3, 1.0)


def _waypoint(behind: Vector, heading: Vector) -> Vector:
    """Returns where to go next, relative to the puck, to come behind it (opposite to `heading`) without touching it."""
    angle = np.arctan2(behind[1], behind[0])
    left = np.angle(np.exp(1j * (np.arctan2(-heading[1], -heading[0]) - angle)))
    turn = np.clip(left, -0.8, 0.8)
    radius = STANDOFF_M if abs(left) < 0.4 else DETOUR_M
    return radius * np.array([np.cos(angle + turn), np.sin(angle + turn)])


def _unit(vector: Vector) -> Vector:
    return vector / max(float(np.linalg.norm(vector)), 1e-9)
