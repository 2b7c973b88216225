"""The cross-entropy method: fit a Gaussian over action sequences to the best candidates, again and again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from mstar_plan.errors import ConfigError
from mstar_plan.rollout.noise import draw_noise
from mstar_plan.rollout.planner import PlannerConfig, PlannerState, SamplingPlanner, assemble, best_first, take


@dataclass(frozen=True)
class CEMConfig(PlannerConfig):
    """Cross-entropy method.

    Attributes:
        momentum: Share of the old mean that stays at a refit, 0 <= momentum < 1.
        momentum_std: Share of the old spread that stays.
    """

    planner: ClassVar[str] = "cem"

    momentum: float = 0.0
    momentum_std: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("momentum", "momentum_std"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"planner.{name} is {getattr(self, name)}; it needs 0 <= {name} < 1", field=name)


class CEM(SamplingPlanner):
    """Cross-entropy method (Rubinstein 1999) with correlated noise and elites that stay candidates.

    A refit sets mean' = m mean + (1 - m) mean(elites), std' = max(floor, m_s std + (1 - m_s) std(elites)).
    """

    def __init__(self, config: CEMConfig) -> None:
        self.config: CEMConfig = config

    def propose(self, state: PlannerState, seed: Tensor, iteration: Tensor, samples: int) -> Tensor:
        """See `Planner`."""
        noise = draw_noise(self.config.noise, seed, iteration, (samples, *state.mean.shape[1:]))
        noisy = torch.addcmul(state.mean[:, None], noise, state.std[:, None])
        return assemble(state, noisy, self.config.zero_candidate)

    def refit(self, state: PlannerState, candidates: Tensor, costs: Tensor) -> PlannerState:
        """See `Planner`."""
        config = self.config
        elites = take(candidates, best_first(costs, config.elites))
        std, mean = torch.std_mean(elites, dim=1, correction=0)
        if config.momentum:
            mean = torch.lerp(mean, state.mean, config.momentum)
        if config.momentum_std:
            std = torch.lerp(std, state.std, config.momentum_std)
        return PlannerState(mean, std.clamp_min(config.std_floor), elites[:, : config.carry])
