"""iCEM: the cross-entropy method with noise of a power spectrum, elites kept over time, and fewer samples later on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from mstar_plan.errors import ConfigError
from mstar_plan.rollout.cem import CEM, CEMConfig
from mstar_plan.rollout.noise import NoiseConfig


@dataclass(frozen=True)
class ICEMConfig(CEMConfig):
    """iCEM. `carry` is the paper's fraction of reused elites times `elites`; `noise.beta` its exponent.

    Attributes:
        decay: Candidates of an iteration over those of the next, >= 1; there are always at least 2 x elites.
    """

    planner: ClassVar[str] = "icem"

    momentum: float = 0.1
    momentum_std: float = 0.1
    carry: int = 3
    noise: NoiseConfig = field(default_factory=lambda: NoiseConfig("power", beta=2.0))
    decay: float = 1.25

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.decay <= 10:
            raise ConfigError(f"planner.decay is {self.decay}; it needs 1 <= decay <= 10", field="decay")


class ICEM(CEM):
    """iCEM (Pinneri et al. 2020).

    The mean is a candidate of every iteration, not of the last alone: a search that may be ended by the clock does not
    know which one is its last.
    """

    def __init__(self, config: ICEMConfig) -> None:
        super().__init__(config)
        self.decay = config.decay

    @property
    def fixed_samples(self) -> bool:  # type: ignore[override]
        """See `Planner`."""
        return self.decay == 1

    def next_samples(self, samples: int) -> int:
        """See `Planner`. A function of the count alone, so that requests at the same iteration still join."""
        fewest = max(2 * self.config.elites, self.config.fewest_samples)
        return min(samples, max(fewest, int(samples / self.decay)))
