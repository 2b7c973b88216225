"""What a planner is measured against from above: the same search on the true state of the simulator.

Shapes: K candidates, H horizon, A action, G task position, E elites.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from mstar_plan.errors import InvalidInputError
from mstar_plan.types import ActionSpec, FloatArray, Goal, Observation, Plan, PlanStatus

Array = npt.NDArray[np.float64]


class Simulator(Protocol):
    """The true world, as far as the oracle needs it."""

    def simulate(self, actions: Any) -> Array:
        """Returns [K, H, G] task positions after each of the [K, H, A] actions, from the present state on."""
        ...


@dataclass(frozen=True)
class OracleConfig:
    """Settings of the search; the standard deviations are fractions of half the action range.

    Attributes:
        horizon: H.
        samples: K, candidates an iteration.
        iterations: Refinements a plan.
        elites: Candidates that mean and deviation are refitted to.
        carry: Elites that go on as candidates: to the next iteration and, shifted, to the next step.
        std: Deviation that every search starts from.
        std_floor: Smallest deviation.
        correlation: Of the noise of successive steps; it makes candidates that go somewhere.
        least_weight: Weight of the smallest distance over the horizon, beside the mean distance; it makes a way
            round an obstacle pay although it leads away from the goal first.
    """

    horizon: int = 16
    samples: int = 64
    iterations: int = 4
    elites: int = 10
    carry: int = 8
    std: float = 0.8
    std_floor: float = 0.02
    correlation: float = 0.8
    least_weight: float = 0.3

    def __post_init__(self) -> None:
        counts = (self.horizon, self.samples, self.iterations, self.elites)
        if min(counts) < 1 or not 0 <= self.carry <= self.elites < self.samples:
            raise InvalidInputError(f"{self} needs counts of at least 1 and carry <= elites < samples")
        if not (0 < self.std_floor <= self.std and 0 <= self.correlation < 1 and self.least_weight >= 0):
            raise InvalidInputError(f"{self} needs 0 < std_floor <= std, 0 <= correlation < 1 and least_weight >= 0")


class OracleController:
    """Cross-entropy search with the simulator as its model: what planning could reach with a perfect world model.

    It replans at every step, from the mean and the elites of the last plan, shifted by one step.

    Args:
        simulator: The unwrapped environment that is being controlled.
        action: What an action is.
        config: Settings of the search.
    """

    def __init__(self, simulator: Simulator, action: ActionSpec, config: OracleConfig | None = None) -> None:
        self._simulator = simulator
        self._action = action
        self._config = config or OracleConfig()
        self._centre = (action.low.astype(np.float64) + action.high) / 2
        self._half = (action.high.astype(np.float64) - action.low) / 2
        self._goal: Array = np.zeros(0)
        self.last_plan: Plan | None = None

    def reset(self, goal: Goal, seed: int = 0) -> None:
        """Starts an episode.

        Raises:
            InvalidInputError: The goal is no state: the oracle knows positions, not images.
        """
        if goal.state is None:
            raise InvalidInputError("the oracle plans on true states; give it goal='state', not an image", field="goal")
        self._goal = goal.state.astype(np.float64)
        self._seed = seed
        self._rng = np.random.default_rng(seed)
        self._mean = np.zeros((self._config.horizon, self._action.size))  # in [-1, 1], like all below
        self._elites = np.zeros((0, *self._mean.shape))
        self.last_plan = None

    def act(self, observation: Observation) -> FloatArray:
        """Returns the first action [A] of the best plan from the simulator's present state."""
        if self._goal.size == 0:
            raise InvalidInputError("the oracle has no goal; call reset first", field="goal")
        best, costs = self._search()
        actions: FloatArray = (self._centre + best * self._half).astype(np.float32)
        self.last_plan = Plan(
            actions=actions,
            cost=costs[-1],
            dt_s=self._action.dt_s,
            status=PlanStatus.COMPLETE,
            iterations=self._config.iterations,
            samples=self._config.samples,
            cost_history=tuple(costs),
            seed=self._seed,
            observation_seq=observation.seq,
        )
        self._mean, self._elites = _shift(self._mean), _shift(self._elites)
        first: FloatArray = actions[0].copy()
        return first

    def _search(self) -> tuple[Array, list[float]]:
        """Returns the best sequence [H, A] in [-1, 1] and the best cost so far after each iteration."""
        config = self._config
        std = np.full_like(self._mean, config.std)
        best, best_costs = self._mean, [np.inf]
        for _ in range(config.iterations):
            candidates = self._candidates(std)
            costs = self._costs(candidates)
            order = np.argsort(costs, kind="stable")
            if costs[order[0]] < best_costs[-1]:
                best = candidates[order[0]]
            best_costs.append(min(best_costs[-1], float(costs[order[0]])))
            chosen = candidates[order[: config.elites]]
            self._mean, std = chosen.mean(axis=0), np.maximum(chosen.std(axis=0), config.std_floor)
            self._elites = chosen[: config.carry]
        return best, best_costs[1:]

    def _candidates(self, std: Array) -> Array:
        """Returns [K, H, A]: the mean, the elites so far, and the mean with AR(1) noise times `std`."""
        rho = self._config.correlation
        count = self._config.samples - 1 - len(self._elites)
        noise = self._rng.standard_normal((count, *self._mean.shape))
        for step in range(1, noise.shape[1]):
            noise[:, step] = rho * noise[:, step - 1] + np.sqrt(1 - rho**2) * noise[:, step]
        candidates: Array = np.concatenate([self._mean[None], self._elites, self._mean + std * noise])
        return np.clip(candidates, -1.0, 1.0)

    def _costs(self, candidates: Array) -> Array:
        reached = self._simulator.simulate(self._centre + candidates * self._half)
        distances_KH: Array = np.linalg.norm(reached - self._goal, axis=-1)
        costs: Array = distances_KH.mean(axis=1) + self._config.least_weight * distances_KH.min(axis=1)
        return costs


def _shift(sequences: Array) -> Array:
    """Drops the first step of [..., H, A] and appends a zero action."""
    return np.concatenate([sequences[..., 1:, :], np.zeros_like(sequences[..., :1, :])], axis=-2)
