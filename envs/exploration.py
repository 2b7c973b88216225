"""Behaviours that collect data: correlated noise, and moving from one random target to the next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


class Behaviour(Protocol):
    """Chooses actions through one episode."""

    def __call__(self, rng: np.random.Generator, qpos: Vector) -> Vector:
        """Returns an action [A], not yet clipped to [-1, 1], for the joint positions [nq]."""
        ...


class OrnsteinUhlenbeck:
    """Noise that reverts to zero: x += -theta x + sigma n, each dimension apart.

    Its theta (0.05 to 0.4) and sigma (0.3 to 1) are drawn once an episode, so that some episodes drift and some jitter.
    """

    def __init__(self, rng: np.random.Generator, size: int = 2) -> None:
        self._theta = rng.uniform(0.05, 0.4)
        self._sigma = rng.uniform(0.3, 1.0)
        self._value = rng.normal(size=size) * self._sigma

    def __call__(self, rng: np.random.Generator, qpos: Vector) -> Vector:
        """Returns the next value, clipped so that it cannot wander far outside the action's bounds."""
        del qpos
        self._value += -self._theta * self._value + self._sigma * rng.normal(size=self._value.shape)
        self._value = np.clip(self._value, -1.0, 1.0)
        return self._value.copy()


class TargetSeeker:
    """Proportional control to a random target, then to the next one.

    A target is left with probability 0.4 a step once reached, else 0.03: both arrivals and changes of mind occur.

    Args:
        rng: Source of the episode's gain (0.6 to 1) and noise (sd 0.05 or 0.3).
        reach: Displacement [m or rad] of one step at full action.
        draw_target: (rng, qpos) -> target [A].
        error: (target, qpos) -> what is left to go [A].
    """

    def __init__(
        self,
        rng: np.random.Generator,
        reach: float,
        draw_target: Callable[[np.random.Generator, Vector], Vector],
        error: Callable[[Vector, Vector], Vector],
    ) -> None:
        self._reach = reach
        self._draw_target = draw_target
        self._error = error
        self._gain = rng.uniform(0.6, 1.0)
        self._noise = rng.choice([0.05, 0.3])
        self._target: Vector | None = None

    def __call__(self, rng: np.random.Generator, qpos: Vector) -> Vector:
        """Returns one step towards the target, with noise."""
        if self._target is not None:
            arrived = bool(np.abs(self._error(self._target, qpos)).max() < 0.35 * self._reach)
            if rng.random() < (0.4 if arrived else 0.03):
                self._target = None
        if self._target is None:
            self._target = self._draw_target(rng, qpos)
        error = self._error(self._target, qpos)
        return np.clip(error / self._reach * self._gain, -1.0, 1.0) + self._noise * rng.normal(size=error.shape)
