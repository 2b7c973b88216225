"""What a planner is: pure functions of a search distribution, its candidates and their costs.

Planners search in [-1, 1] units: 0 is the centre of the action bounds, 1 their half range. `SearchSpace` projects what
they propose onto the limits before it is scored.

Shapes: B requests, K candidates, E elites, H horizon, A action.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import ClassVar, Protocol, Self, cast, runtime_checkable

import torch
from torch import Tensor

from mstar_plan.errors import ConfigError, did_you_mean
from mstar_plan.rollout.noise import NoiseConfig
from mstar_plan.types import ActionSpec

PLANNERS: Mapping[str, str] = {
    "cem": "mstar_plan.rollout.cem:CEM",
    "icem": "mstar_plan.rollout.icem:ICEM",
    "mppi": "mstar_plan.rollout.mppi:MPPI",
    "random_shooting": "mstar_plan.rollout.random_shooting:RandomShooting",
    "vjepa2_cem": "mstar_plan.rollout.vjepa2_cem:VJEPA2CEM",
}
PLANNER_CONFIGS: Mapping[str, str] = {name: f"{target}Config" for name, target in PLANNERS.items()}


@dataclass(frozen=True)
class PlannerConfig:
    """What all planners share; a request may ask for other samples, iterations and horizon.

    Attributes:
        samples: K, candidates of the first iteration.
        iterations: Iterations at most.
        horizon: H, actions in a plan.
        elites: Best candidates that the distribution is fitted to.
        carry: Best candidates that are candidates again, in the next iteration and in the next search; <= elites.
        std: Spread at the start of a search, as a fraction of the half range.
        std_floor: Smallest spread.
        zero_candidate: Whether "all actions at the centre of the bounds" is always a candidate.
        noise: Correlation of the noise over the horizon.
        tolerance: The search has converged when every spread is at most this; 0 never ends it early.
    """

    planner: ClassVar[str] = ""

    samples: int = 96
    iterations: int = 5
    horizon: int = 12
    elites: int = 10
    carry: int = 5
    std: float = 0.6
    std_floor: float = 0.02
    zero_candidate: bool = True
    noise: NoiseConfig = field(default_factory=NoiseConfig)
    tolerance: float = 0.0

    def __post_init__(self) -> None:
        for name in ("samples", "iterations", "horizon", "elites"):
            if getattr(self, name) < 1:
                raise ConfigError(f"planner.{name} is {getattr(self, name)}; it needs at least 1", field=name)
        if not 0 <= self.carry <= self.elites:
            raise ConfigError(f"planner.carry is {self.carry}; it needs 0..elites ({self.elites})", field="carry")
        if self.elites > self.samples:
            raise ConfigError(f"planner.elites {self.elites} is over samples {self.samples}", field="elites")
        if not 0 < self.std <= 10:
            raise ConfigError(f"planner.std is {self.std}; it needs 0 < std <= 10 (of the half range)", field="std")
        if not 0 <= self.std_floor <= self.std:
            raise ConfigError(f"planner.std_floor is {self.std_floor}; it needs 0..std ({self.std})", field="std_floor")
        if self.tolerance < 0:
            raise ConfigError(f"planner.tolerance is {self.tolerance}; it needs at least 0", field="tolerance")

    @property
    def fewest_samples(self) -> int:
        """The smallest K that a search can be run with: the mean, the carried and zero, and enough to fit to."""
        return max(self.elites, 1 + self.carry + int(self.zero_candidate))


@dataclass(frozen=True, eq=False)
class PlannerState:
    """The search distribution, in [-1, 1] units.

    Attributes:
        mean: [B, H, A].
        std: [B, H, A].
        elites: [B, E, H, A] best candidates so far, best first; E may be 0.
    """

    mean: Tensor
    std: Tensor
    elites: Tensor


@runtime_checkable
class Planner(Protocol):
    """A sampling planner. All are pure: the same arguments give the same values."""

    config: PlannerConfig

    @property
    def fixed_samples(self) -> bool:
        """Whether every iteration has as many candidates as the first."""
        ...

    @property
    def returns_best(self) -> bool:
        """Whether the plan is the best candidate that was ever scored; otherwise it is `answer` of the last state."""
        ...

    def bind(self, action: ActionSpec) -> Planner:
        """The same planner for actions of these bounds and units, where they matter to it.

        Raises:
            ConfigError: Its settings do not fit them.
        """
        ...

    def init(self, shape: tuple[int, int, int], warm: PlannerState | None, device: torch.device) -> PlannerState:
        """The distribution at the start of a search over `shape` (B, H, A): fresh, or around the last one's result."""
        ...

    def propose(self, state: PlannerState, seed: Tensor, iteration: Tensor, samples: int) -> Tensor:
        """Candidates [B, K, H, A], not yet inside the limits; noise from (seed [B], iteration [B]) int64 alone."""
        ...

    def refit(self, state: PlannerState, candidates: Tensor, costs: Tensor) -> PlannerState:
        """The distribution after candidates [B, K, H, A] got costs [B, K]; costs that are not finite are the worst."""
        ...

    def next_samples(self, samples: int) -> int:
        """K of the iteration after one with `samples` candidates."""
        ...

    def answer(self, state: PlannerState) -> Tensor:
        """The plan [B, H, A] that a search ends with, for planners that do not return the best candidate."""
        ...


class SamplingPlanner:
    """What the planners of this room share. Subclasses say how to `propose` and `refit`."""

    config: PlannerConfig
    fixed_samples = True
    returns_best = True

    def bind(self, action: ActionSpec) -> Self:
        """See `Planner`. Planners in [-1, 1] need not know what the actions are."""
        return self

    def init(self, shape: tuple[int, int, int], warm: PlannerState | None, device: torch.device) -> PlannerState:
        """See `Planner`. The spread starts anew with every search; only mean and elites carry over."""
        std = torch.full(shape, self.config.std, device=device)
        if warm is not None:
            return PlannerState(warm.mean, std, warm.elites)
        batch, horizon, size = shape
        return PlannerState(torch.zeros(shape, device=device), std, torch.zeros(batch, 0, horizon, size, device=device))

    def next_samples(self, samples: int) -> int:
        """See `Planner`."""
        return samples

    def answer(self, state: PlannerState) -> Tensor:
        """See `Planner`."""
        return state.mean


def make_planner(config: PlannerConfig, action: ActionSpec | None = None) -> Planner:
    """The planner that `config` is for.

    Args:
        config: Its settings.
        action: What it plans, for planners whose settings are in the units of actions; None: numbers in [-1, 1].

    Raises:
        ConfigError: The config belongs to no planner, or does not fit the actions.
    """
    if config.planner not in PLANNERS:
        raise ConfigError(f"planner is {config.planner!r}{did_you_mean(config.planner, PLANNERS)}", field="planner")
    module, _, name = PLANNERS[config.planner].partition(":")
    made = cast(Planner, getattr(import_module(module), name)(config))
    return made if action is None else made.bind(action)


def assemble(state: PlannerState, noisy: Tensor, zero: bool) -> Tensor:
    """Candidates [B, K, H, A]: the mean, the elites, all-zero (if wanted), then `noisy` [B, K, H, A] from there on.

    Noise of candidate k stays with candidate k: the first ones' is not used.
    """
    batch, samples, horizon, size = noisy.shape
    known = [state.mean[:, None], state.elites]
    if zero:
        known.append(noisy.new_zeros(batch, 1, horizon, size))
    count = 1 + state.elites.shape[1] + int(zero)
    return torch.cat([*known, noisy[:, count:]], 1)[:, :samples]


def best_first(costs: Tensor, count: int) -> Tensor:
    """Indices [B, count] of the lowest costs [B, K], lowest first, ties by index.

    Costs that are not finite are the worst; where too few are finite, the best candidate stands in for them, so that a
    distribution is never fitted to a failed rollout.
    """
    finite = torch.where(costs.isfinite(), costs, torch.inf)
    values, order = finite.sort(dim=1, stable=True)
    order = order[:, :count]
    return torch.where(values[:, :count].isfinite(), order, order[:, :1])


def take(candidates: Tensor, index: Tensor) -> Tensor:
    """Candidates [B, E, H, A] at `index` [B, E] of [B, K, H, A]."""
    return torch.take_along_dim(candidates, index[:, :, None, None], 1)


def converged(state: PlannerState, tolerance: float) -> Tensor:
    """Whether every spread of a row is at most `tolerance`: bool [B]; never for 0."""
    if tolerance == 0:
        return state.std.new_zeros(state.std.shape[0], dtype=torch.bool)
    return state.std.flatten(1).amax(1) <= tolerance
