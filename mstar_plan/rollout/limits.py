"""How much one plan request may ask for, and what it gets where it does not say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mstar_plan.errors import ConfigError, LimitExceededError
from mstar_plan.models.world_model import ModelSpec
from mstar_plan.types import PlanRequest

MIB = 2**20


@dataclass(frozen=True)
class PlanLimits:
    """The most that one request may ask for; over it is an error, never clamped.

    Attributes:
        max_horizon: Actions in a plan; the model's own limit holds as well.
        max_iterations: Planner iterations.
        max_samples: Candidates an iteration.
        max_soft_time_s: Seconds of search.
        max_memory_mb: Mebibytes that the rollouts of one plan may hold, for models that can tell; where all candidates
            at once would hold more, they are rolled out in parts. 0: half of what is free when the models are built.
    """

    max_horizon: int = 64
    max_iterations: int = 100
    max_samples: int = 4096
    max_soft_time_s: float = 30.0
    max_memory_mb: int = 0

    def __post_init__(self) -> None:
        for name in ("max_horizon", "max_iterations", "max_samples"):
            if getattr(self, name) < 1:
                raise ConfigError(f"limits.{name} is {getattr(self, name)}; it needs at least 1", field=name)
        if not 0 < self.max_soft_time_s < float("inf"):
            raise ConfigError(
                f"limits.max_soft_time_s is {self.max_soft_time_s}; it needs a positive number of seconds",
                field="max_soft_time_s",
            )
        if self.max_memory_mb < 0:
            raise ConfigError(f"limits.max_memory_mb is {self.max_memory_mb}; it needs at least 0", field="limits")


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


def candidates_at_once(
    samples: int, horizon: int, footprint: Callable[[int, int], int], limits: PlanLimits, spec: ModelSpec
) -> int:
    """The most candidates, halving from `samples`, whose rollouts fit into the memory that a plan may hold.

    Raises:
        LimitExceededError: Not even one does.
    """
    budget = limits.max_memory_mb * MIB
    most = samples
    while most > 1 and footprint(most, horizon) > budget:
        most = -(-most // 2)
    if footprint(most, horizon) > budget:
        raise LimitExceededError(
            f"one candidate of model {spec.name!r} over {horizon} steps holds {footprint(1, horizon) / MIB:.0f} MiB; a "
            f"plan may hold {limits.max_memory_mb} MiB: ask for a shorter horizon, or raise limits.max_memory_mb",
            field="horizon",
            details={"limit": f"{limits.max_memory_mb}"},
        )
    return most


def _under(name: str, value: float, limit: float, whose: str) -> None:
    if value > limit:
        raise LimitExceededError(
            f"{name} is {value:g}; the limit of {whose} is {limit:g}: ask for less",
            field=name,
            details={"limit": f"{limit:g}"},
        )
