"""Random shooting: candidates uniform over the bounds in every iteration; the best one is the plan."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from mstar_plan.rollout.noise import draw_noise
from mstar_plan.rollout.planner import PlannerConfig, PlannerState, SamplingPlanner, assemble, best_first, take


@dataclass(frozen=True)
class RandomShootingConfig(PlannerConfig):
    """Random shooting: the baseline that a planner has to beat. `elites` bounds `carry` alone, `std` is not used."""

    planner: ClassVar[str] = "random_shooting"

    std: float = 1.0
    std_floor: float = 1.0
    carry: int = 1


class RandomShooting(SamplingPlanner):
    """Uniform candidates; every iteration draws anew.

    Correlation over the horizon stays: normal noise becomes uniform by its distribution function (Gaussian copula).
    """

    def __init__(self, config: RandomShootingConfig) -> None:
        self.config: RandomShootingConfig = config

    def propose(self, state: PlannerState, seed: Tensor, iteration: Tensor, samples: int) -> Tensor:
        """See `Planner`."""
        noise = draw_noise(self.config.noise, seed, iteration, (samples, *state.mean.shape[1:]))
        uniform = torch.erf(noise * math.sqrt(0.5))  # twice the normal distribution function, less one
        return assemble(state, uniform, self.config.zero_candidate)

    def refit(self, state: PlannerState, candidates: Tensor, costs: Tensor) -> PlannerState:
        """See `Planner`."""
        best = take(candidates, best_first(costs, max(1, self.config.carry)))
        return PlannerState(best[:, 0], state.std, best[:, : self.config.carry])
