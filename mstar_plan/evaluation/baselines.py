"""What a planner is measured against from below: random actions, and none."""

from __future__ import annotations

import numpy as np

from mstar_plan.types import ActionSpec, FloatArray, Goal, Observation, Plan


class RandomController:
    """Draws every action uniformly within its bounds; the same seed gives the same actions.

    Args:
        action: What an action is.
    """

    last_plan: Plan | None = None

    def __init__(self, action: ActionSpec) -> None:
        self._action = action
        self._rng = np.random.default_rng(0)

    def reset(self, goal: Goal, seed: int = 0) -> None:
        """Starts an episode; the goal does not matter."""
        del goal
        self._rng = np.random.default_rng(seed)

    def act(self, observation: Observation) -> FloatArray:
        """Returns a random action [A]."""
        del observation
        return self._rng.uniform(self._action.low, self._action.high).astype(np.float32)


class NoOpController:
    """Keeps still: what the task looks like when nothing is done.

    Args:
        action: What an action is.
    """

    last_plan: Plan | None = None

    def __init__(self, action: ActionSpec) -> None:
        self._still = np.clip(np.zeros(action.size, np.float32), action.low, action.high)

    def reset(self, goal: Goal, seed: int = 0) -> None:
        """Starts an episode; neither argument matters."""
        del goal, seed

    def act(self, observation: Observation) -> FloatArray:
        """Returns zeros [A], or what is nearest to zero within the bounds."""
        del observation
        return self._still.copy()
