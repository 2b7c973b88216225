"""How much one plan request may ask for, and what it gets where it does not say."""

from __future__ import annotations

from dataclasses import dataclass

from mstar_plan.errors import ConfigError, LimitExceededError
from mstar_plan.models.world_model import ModelSpec
from mstar_plan.types import PlanRequest


@dataclass(frozen=True)
class PlanLimits:
    """The most that one request may ask for; over it is an error, never clamped.

    Attributes:
        max_horizon: Actions in a plan; the model's own limit holds as well.
        max_iterations: Planner iterations.
        max_samples: Candidates an iteration.
        max_soft_time_s: Seconds of search.
    """

    max_horizon: int = 64
    max_iterations: int = 100
    max_samples: int = 4096
    max_soft_time_s: float = 30.0

    def __post_init__(self) -> None:
        for name in ("max_horizon", "max_iterations", "max_samples"):
            if getattr(self, name) < 1:
                raise ConfigError(f"limits.{name} is {getattr(self, name)}; it needs at least 1", field=name)
        if not 0 < self.max_soft_time_s < float("inf"):
            raise ConfigError(
                f"limits.max_soft_time_s is {self.max_soft_time_s}; it needs a positive number of seconds",
                field="max_soft_time_s",
            )


@dataclass(frozen=True)
class PlanDefaults:
    """What a request gets where it does not say: H, iterations and K."""

    horizon: int
    iterations: int
    samples: int


def effort(request: PlanRequest, defaults: PlanDefaults, limits: PlanLimits, spec: ModelSpec) -> PlanDefaults:
    """H, iterations and K of this request.

    Raises:
        LimitExceededError: It asks for more than the limits or the model allow.
    """
    horizon = defaults.horizon if request.horizon is None else request.horizon
    iterations = defaults.iterations if request.iterations is None else request.iterations
    samples = defaults.samples if request.samples is None else request.samples
    _under("horizon", horizon, limits.max_horizon, "this server")
    _under("horizon", horizon, spec.max_horizon, f"model {spec.name!r}")
    _under("iterations", iterations, limits.max_iterations, "this server")
    _under("samples", samples, limits.max_samples, "this server")
    if request.soft_time_s is not None:
        _under("soft_time_s", request.soft_time_s, limits.max_soft_time_s, "this server")
    return PlanDefaults(horizon, iterations, samples)


def _under(name: str, value: float, limit: float, whose: str) -> None:
    if value > limit:
        raise LimitExceededError(
            f"{name} is {value:g}; the limit of {whose} is {limit:g}: ask for less",
            field=name,
            details={"limit": f"{limit:g}"},
        )
