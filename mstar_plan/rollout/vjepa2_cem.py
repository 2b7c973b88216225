"""The cross-entropy method that V-JEPA 2-AC was published with: bounds in metres, a gripper apart, the mean as plan.

Reproduces facebookresearch/vjepa2, notebooks/utils/mpc_utils.py (`cem`), on this project's planner protocol: settings
are in the units of actions, the distribution is in [-1, 1] like that of every planner.

Shapes: B requests, K candidates, E elites, H horizon, A action, S sampled dimensions of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from mstar_plan.errors import ConfigError
from mstar_plan.rollout.noise import NoiseConfig, draw_noise
from mstar_plan.rollout.planner import PlannerConfig, PlannerState, SamplingPlanner, best_first, take
from mstar_plan.types import POSE_UNITS, ActionSpec, FloatArray

NoiseSource = Callable[[NoiseConfig, Tensor, Tensor, tuple[int, int, int]], Tensor]

POSE_SAMPLED = (0, 1, 2, 6)  # xyz and gripper; rotations stay zero
GRIPPER = 6
CLOSE = 1.0  # the gripper action that `close_gripper` forces


@dataclass(frozen=True)
class VJEPA2CEMConfig(PlannerConfig):
    """The published planner. It starts every search afresh: a warm start is not used, no candidate is carried.

    `maxnorm` and all that concerns the gripper are for actions in (m, m, m, rad, rad, rad, 1); of others every
    dimension is sampled like a translation, from `std` times the half range and within the bounds.

    Attributes:
        maxnorm: Spread of the first translations, and the largest translation of an action along each axis, in m.
        gripper_std: Spread of the first gripper actions.
        gripper_clip: Largest gripper action that is sampled.
        momentum_mean: Share of the old mean that stays at a refit, 0 <= momentum < 1.
        momentum_std: Share of the old spread that stays.
        momentum_mean_gripper: The same for the gripper's mean.
        momentum_std_gripper: The same for the gripper's spread.
        round_gripper: Gripper actions of the plan that are smaller than this become 0.
        close_gripper: Step from which on the gripper closes; None leaves it to the search.
        fixed: Pairs (index, value) that pin sampled dimensions, counted as x, y, z, gripper; in the action's units.
    """

    planner: ClassVar[str] = "vjepa2_cem"

    samples: int = 400
    iterations: int = 10
    horizon: int = 2
    elites: int = 10
    carry: int = 0
    std: float = 1.0
    std_floor: float = 0.0
    zero_candidate: bool = False
    noise: NoiseConfig = field(default_factory=lambda: NoiseConfig("white"))
    maxnorm: float = 0.05
    gripper_std: float = 1.0
    gripper_clip: float = 0.75
    momentum_mean: float = 0.15
    momentum_std: float = 0.15
    momentum_mean_gripper: float = 0.15
    momentum_std_gripper: float = 0.15
    round_gripper: float = 0.25
    close_gripper: int | None = None
    fixed: tuple[tuple[int, float], ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.carry or self.std_floor or self.zero_candidate:
            raise ConfigError("planner vjepa2_cem has no carry, std_floor or zero_candidate; planner=cem has")
        if self.elites < 2:
            raise ConfigError("planner.elites is 1; an unbiased spread needs at least 2", field="elites")
        for name in (each.name for each in fields(self) if each.name.startswith("momentum")):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"planner.{name} is {getattr(self, name)}; it needs 0 <= {name} < 1", field=name)
        for name in ("maxnorm", "gripper_std", "gripper_clip"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ConfigError(f"planner.{name} is {getattr(self, name)}; it needs a positive number", field=name)
        if not 0 <= self.round_gripper < float("inf"):
            raise ConfigError(
                f"planner.round_gripper is {self.round_gripper}; it needs a number >= 0", field="round_gripper"
            )
        if self.close_gripper is not None and self.close_gripper < 0:
            raise ConfigError(
                f"planner.close_gripper is {self.close_gripper}; it needs a step >= 0", field="close_gripper"
            )
        if len({index for index, _ in self.fixed}) < len(self.fixed):
            raise ConfigError(f"planner.fixed is {self.fixed}; it pins a dimension twice", field="fixed")


@dataclass(frozen=True, eq=False)
class Ranges:
    """What is sampled of actions and from where: [A] each, in [-1, 1] units, and the sampled dimensions' numbers [S].

    A dimension that is not sampled, or pinned, has one value as its `low` and `high`.
    """

    mean: Tensor
    std: Tensor
    low: Tensor
    high: Tensor
    zero: Tensor
    momentum_mean: Tensor
    momentum_std: Tensor
    sampled: Tensor

    def to(self, device: torch.device) -> Ranges:
        """The same on another device."""
        return Ranges(*(getattr(self, each.name).to(device) for each in fields(self)))


class VJEPA2CEM(SamplingPlanner):
    """The published planner.

    A refit sets mean' = m mean + (1 - m) mean(elites) and std' = m_s std + (1 - m_s) std(elites), with the unbiased
    standard deviation and momenta of its own for the gripper. The plan is the mean; small gripper actions become 0.

    Args:
        config: Its settings.
        action: What it plans; None: numbers in [-1, 1].
        noise: Where its noise comes from, called like `draw_noise` for shape (K, H, S).
    """

    returns_best = False

    def __init__(
        self, config: VJEPA2CEMConfig, action: ActionSpec | None = None, noise: NoiseSource | None = None
    ) -> None:
        self.config: VJEPA2CEMConfig = config
        self.noise = noise or draw_noise
        self.action = action
        self.has_gripper = action is not None and action.units == POSE_UNITS
        self._ranges: dict[tuple[int, torch.device], Ranges] = {}
        if action is not None:
            _check(config, action, self.has_gripper)

    def bind(self, action: ActionSpec) -> Self:
        """See `Planner`."""
        return type(self)(self.config, action, self.noise)

    def init(self, shape: tuple[int, int, int], warm: PlannerState | None, device: torch.device) -> PlannerState:
        """See `Planner`. The published search knows no warm start."""
        batch, horizon, size = shape
        ranges = self._on(size, device)
        none = torch.zeros(batch, 0, horizon, size, device=device)
        return PlannerState(ranges.mean.expand(shape).clone(), ranges.std.expand(shape).clone(), none)

    def propose(self, state: PlannerState, seed: Tensor, iteration: Tensor, samples: int) -> Tensor:
        """See `Planner`."""
        _, horizon, size = state.mean.shape
        ranges = self._on(size, state.mean.device)
        noise = self.noise(self.config.noise, seed, iteration, (samples, horizon, len(ranges.sampled)))
        if len(ranges.sampled) < size:
            noise = noise.new_zeros(*noise.shape[:3], size).index_copy_(3, ranges.sampled, noise)
        drawn = torch.addcmul(state.mean[:, None], noise, state.std[:, None])
        candidates = torch.clamp(drawn, ranges.low, ranges.high)
        if self.has_gripper and self.config.close_gripper is not None:
            candidates[:, :, self.config.close_gripper :, GRIPPER] = self._unit(CLOSE, GRIPPER)
        return candidates

    def refit(self, state: PlannerState, candidates: Tensor, costs: Tensor) -> PlannerState:
        """See `Planner`."""
        ranges = self._on(state.mean.shape[2], state.mean.device)
        elites = take(candidates, best_first(costs, self.config.elites))
        std, mean = torch.std_mean(elites, dim=1, correction=1)
        mean = torch.lerp(mean, state.mean, ranges.momentum_mean)
        std = torch.lerp(std, state.std, ranges.momentum_std)
        return PlannerState(mean, std, elites[:, :0])

    def answer(self, state: PlannerState) -> Tensor:
        """See `Planner`."""
        if not self.has_gripper:
            return state.mean
        ranges = self._on(state.mean.shape[2], state.mean.device)
        small = (state.mean - ranges.zero).abs() < self.config.round_gripper / self._half(GRIPPER)
        small[..., :GRIPPER] = False
        return torch.where(small, ranges.zero, state.mean)

    def _half(self, index: int) -> float:
        """Half the range of a dimension, in its units."""
        return 1.0 if self.action is None else float(self.action.high[index] - self.action.low[index]) / 2

    def _unit(self, value: float, index: int) -> float:
        """A value of a dimension, scaled from its units to [-1, 1]."""
        centre = 0.0 if self.action is None else float(self.action.high[index] + self.action.low[index]) / 2
        return (value - centre) / self._half(index)

    def _on(self, size: int, device: torch.device) -> Ranges:
        """The ranges of actions of this size on a device: made once."""
        if (size, device) not in self._ranges:
            self._ranges[size, device] = self._make(size).to(device)
        return self._ranges[size, device]

    def _make(self, size: int) -> Ranges:
        config = self.config
        rows: list[tuple[float, ...]] = []  # of each dimension: the first fields of Ranges in their order
        for i in range(size):
            zero = self._unit(0.0, i)
            momenta = config.momentum_mean, config.momentum_std
            if not self.has_gripper:
                rows.append((0.0, config.std, -1.0, 1.0, zero, *momenta))
            elif i not in POSE_SAMPLED:
                rows.append((zero, 0.0, zero, zero, zero, *momenta))
            else:
                std, clip = (config.maxnorm,) * 2
                if i == GRIPPER:
                    std, clip = config.gripper_std, config.gripper_clip
                    momenta = config.momentum_mean_gripper, config.momentum_std_gripper
                rows.append((zero, std / self._half(i), self._unit(-clip, i), self._unit(clip, i), zero, *momenta))
        for index, value in config.fixed:
            i = POSE_SAMPLED[index] if self.has_gripper else index
            pinned = self._unit(value, i)
            rows[i] = (pinned, rows[i][1], pinned, pinned, *rows[i][4:])
        sampled = torch.tensor(POSE_SAMPLED if self.has_gripper else range(size))
        return Ranges(*(*torch.tensor(rows, dtype=torch.float32).T.contiguous().unbind(), sampled))


def _check(config: VJEPA2CEMConfig, action: ActionSpec, has_gripper: bool) -> None:
    """Refuses settings that reach over the bounds of the actions: nothing is clamped behind the search's back."""
    sampled = POSE_SAMPLED if has_gripper else tuple(range(action.size))
    wanted: list[tuple[str, int, float]] = []
    if has_gripper:
        for i in POSE_SAMPLED:
            name, reach = ("gripper_clip", config.gripper_clip) if i == GRIPPER else ("maxnorm", config.maxnorm)
            wanted += [(name, i, reach), (name, i, -reach)]
        wanted += [("close_gripper", GRIPPER, CLOSE)] if config.close_gripper is not None else []
        wanted += [("rotation", i, 0.0) for i in range(action.size) if i not in sampled]
    elif config.close_gripper is not None:
        raise ConfigError(
            f"planner.close_gripper is {config.close_gripper}, but the actions have units {', '.join(action.units)}, "
            f"not {', '.join(POSE_UNITS)}: there is no gripper to close",
            field="close_gripper",
        )
    for index, value in config.fixed:
        if not 0 <= index < len(sampled):
            raise ConfigError(f"planner.fixed pins {index}; it needs 0..{len(sampled) - 1}", field="fixed")
        wanted.append(("fixed", sampled[index], value))
    for name, i, value in wanted:
        slack = 1e-6 * _range(action)[i]
        if not action.low[i] - slack <= value <= action.high[i] + slack:
            raise ConfigError(
                f"planner.{name} asks for {value:g} of {action.names[i]}, whose bounds are {action.low[i]:g}.."
                f"{action.high[i]:g} {action.units[i]}: lower it, or widen the bounds that the model was loaded with",
                field=name,
            )


def _range(action: ActionSpec) -> FloatArray:
    return np.asarray(action.high - action.low, np.float32)
