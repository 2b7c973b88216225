"""Model predictive path integral control: the mean of all candidates, weighted by the exponential of their costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from mstar_plan.errors import ConfigError
from mstar_plan.rollout.noise import draw_noise
from mstar_plan.rollout.planner import PlannerConfig, PlannerState, SamplingPlanner, assemble, best_first, take


@dataclass(frozen=True)
class MPPIConfig(PlannerConfig):
    """Path integral control. `elites` bounds `carry` alone: all candidates have a weight.

    Attributes:
        temperature: Lambda of the weights exp(-cost / lambda); smaller is greedier.
        normalise: Divide costs by their standard deviation first, so that `temperature` does not depend on the units of
            the objective.
        adapt_std: Fit the spread to the weighted candidates, too; otherwise it stays at `std`.
    """

    planner: ClassVar[str] = "mppi"

    temperature: float = 0.2
    normalise: bool = True
    adapt_std: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.temperature < float("inf"):
            raise ConfigError(
                f"planner.temperature is {self.temperature}; it needs a positive number", field="temperature"
            )


def path_weights(costs: Tensor, temperature: float, normalise: bool) -> Tensor:
    """Weights [B, K] that sum to 1: softmax(-(cost - min) / (lambda scale)); 0 for costs that are not finite.

    Williams et al. 2017 (information theoretic MPC). Where no cost is finite, all weights are equal.
    """
    finite = costs.isfinite()
    lowest = torch.where(finite, costs, torch.inf).amin(1, keepdim=True)
    excess = torch.where(finite, costs - lowest, 0.0)
    if normalise:
        count = finite.sum(1, keepdim=True).clamp_min(1)
        centred = torch.where(finite, excess - excess.sum(1, keepdim=True) / count, 0.0)
        scale = (centred.square().sum(1, keepdim=True) / count).sqrt().clamp_min(1e-12)
        excess = excess / scale
    logits = torch.where(finite, -excess / temperature, torch.where(finite.any(1, keepdim=True), -torch.inf, 0.0))
    return torch.softmax(logits, 1)


class MPPI(SamplingPlanner):
    """Model predictive path integral control (Williams et al. 2017), iterated, with the best candidates kept."""

    def __init__(self, config: MPPIConfig) -> None:
        self.config: MPPIConfig = config

    def propose(self, state: PlannerState, seed: Tensor, iteration: Tensor, samples: int) -> Tensor:
        """See `Planner`."""
        noise = draw_noise(self.config.noise, seed, iteration, (samples, *state.mean.shape[1:]))
        noisy = torch.addcmul(state.mean[:, None], noise, state.std[:, None])
        return assemble(state, noisy, self.config.zero_candidate)

    def refit(self, state: PlannerState, candidates: Tensor, costs: Tensor) -> PlannerState:
        """See `Planner`."""
        config = self.config
        weights = path_weights(costs, config.temperature, config.normalise)[:, :, None, None]
        mean = (weights * candidates).sum(1)
        std = state.std
        if config.adapt_std:
            std = (weights * (candidates - mean[:, None]).square()).sum(1).sqrt().clamp_min(config.std_floor)
        return PlannerState(mean, std, take(candidates, best_first(costs, config.carry)))
