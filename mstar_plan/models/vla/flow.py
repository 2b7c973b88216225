"""Time grids of flow matching, and its Euler step: pure functions; nothing here knows a model.

Shapes: N steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from mstar_plan.errors import ConfigError

MOST_STEPS = 1000
KARRAS_RHO = 7.0


def euler_times(steps: int) -> Tensor:
    """The times of a robot policy's flow, from noise at 1 towards actions at 0: t_k = 1 - k / N (openpi, LeRobot).

    Returns:
        [N] float32 times at which the velocity is asked for. Each step is of length -1 / N.

    Raises:
        ConfigError: `steps` is no whole number of 1 to 1000.
    """
    _need_steps(steps)
    dt = -1.0 / steps
    return torch.tensor([1.0 + k * dt for k in range(steps)], dtype=torch.float32)


def euler_step(x: Tensor, velocity: Tensor, dt: Tensor | float) -> Tensor:
    """One explicit Euler step: x + dt * velocity, all of one shape or broadcast to it."""
    return x + dt * velocity


@dataclass(frozen=True)
class FlowMatchConfig:
    """The published flow-matching Euler schedule (diffusers' FlowMatchEulerDiscreteScheduler).

    Attributes:
        num_train_timesteps: Time steps of the training; sigma times this is the time that a model is told.
        shift: Static shift s: sigma' = s * sigma / (1 + (s - 1) * sigma). Not used with dynamic shifting.
        use_dynamic_shifting: Shift by `mu`, which each call gives, in the place of `shift`.
        time_shift_type: Form of the dynamic shift.
        shift_terminal: Stretch the schedule so that its last sigma is this; None or 0 leaves it.
        use_karras_sigmas: Space the sigmas by Karras et al. 2022, rho = 7.
        use_exponential_sigmas: Space them evenly in their logarithm.
        invert_sigmas: Run from 0 to 1: every sigma becomes 1 - sigma.
    """

    num_train_timesteps: int = 1000
    shift: float = 1.0
    use_dynamic_shifting: bool = False
    time_shift_type: Literal["exponential", "linear"] = "exponential"
    shift_terminal: float | None = None
    use_karras_sigmas: bool = False
    use_exponential_sigmas: bool = False
    invert_sigmas: bool = False

    def __post_init__(self) -> None:
        if type(self.num_train_timesteps) is not int or self.num_train_timesteps < 1:
            what = f"num_train_timesteps is {self.num_train_timesteps!r}; it needs a whole number of at least 1"
            raise ConfigError(what, field="num_train_timesteps")
        if not (math.isfinite(self.shift) and self.shift > 0):
            raise ConfigError(f"shift is {self.shift}; it needs a positive number", field="shift")
        if self.time_shift_type not in ("exponential", "linear"):
            what = f"time_shift_type is {self.time_shift_type!r}; use exponential or linear"
            raise ConfigError(what, field="time_shift_type")
        if self.shift_terminal is not None and not 0 <= self.shift_terminal < 1:
            what = f"shift_terminal is {self.shift_terminal}; it needs a number of 0 to below 1"
            raise ConfigError(what, field="shift_terminal")
        if self.use_karras_sigmas and self.use_exponential_sigmas:
            raise ConfigError("karras and exponential sigmas are both asked for; choose one", field="use_karras_sigmas")


@dataclass(frozen=True, eq=False)
class FlowMatchSchedule:
    """A schedule that was worked out.

    Attributes:
        timesteps: [N] float32 that a model is told, of 0 to `num_train_timesteps`.
        sigmas: [N + 1] float32 noise levels, the last one where the flow ends.
    """

    timesteps: Tensor
    sigmas: Tensor

    def step(self, sample: Tensor, velocity: Tensor, index: int) -> Tensor:
        """The sample after step `index`, from the velocity at its start; both of one shape."""
        dt = self.sigmas[index + 1] - self.sigmas[index]
        return euler_step(sample.float(), velocity, dt).to(velocity.dtype)


def flow_match_schedule(
    config: FlowMatchConfig, steps: int | None = None, *, sigmas: Sequence[float] | None = None, mu: float | None = None
) -> FlowMatchSchedule:
    """Works out the schedule of a run.

    Args:
        config: Its rules.
        steps: N; None: as many as `sigmas`.
        sigmas: Noise levels to start from in the place of evenly spaced ones; they are shifted as those would be.
        mu: Of the dynamic shift.

    Raises:
        ConfigError: N is missing, out of range or not the number of sigmas; or a dynamic shift lacks `mu`.
    """
    if steps is None and sigmas is None:
        raise ConfigError("a schedule needs steps or sigmas; give one of them", field="steps")
    count = len(sigmas) if sigmas is not None else steps
    if count is None or (steps is not None and steps != count):
        raise ConfigError(f"{count} sigmas, but {steps} steps; give as many, or sigmas alone", field="steps")
    _need_steps(count)
    levels = _shifted(config, _levels(config, count, sigmas), mu)
    if config.shift_terminal:
        levels = 1 - (1 - levels) / ((1 - levels[-1]) / (1 - config.shift_terminal))
    if config.use_karras_sigmas:
        low, high = (float(levels[at]) ** (1 / KARRAS_RHO) for at in (-1, 0))
        levels = (high + torch.linspace(0, 1, count, dtype=torch.float64) * (low - high)) ** KARRAS_RHO
    elif config.use_exponential_sigmas:
        low, high = (math.log(float(levels[at])) for at in (-1, 0))
        levels = torch.linspace(high, low, count, dtype=torch.float64).exp()
    found = levels.to(torch.float32)
    end = torch.zeros(1)
    if config.invert_sigmas:
        found, end = 1.0 - found, torch.ones(1)
    return FlowMatchSchedule(found * config.num_train_timesteps, torch.cat([found, end]))


def _levels(config: FlowMatchConfig, count: int, sigmas: Sequence[float] | None) -> Tensor:
    """Noise levels before any shift of this run; the range of even ones has been through the static shift once."""
    if sigmas is not None:
        return torch.tensor(list(sigmas), dtype=torch.float32)
    ends = torch.tensor([config.num_train_timesteps, 1.0], dtype=torch.float32) / config.num_train_timesteps
    if not config.use_dynamic_shifting:
        ends = _static(config.shift, ends)
    high, low = (float(end) * config.num_train_timesteps for end in ends)
    return torch.linspace(high, low, count, dtype=torch.float64) / config.num_train_timesteps


def _static(shift: float, levels: Tensor) -> Tensor:
    return shift * levels / (1 + (shift - 1) * levels)


def _shifted(config: FlowMatchConfig, levels: Tensor, mu: float | None) -> Tensor:
    if not config.use_dynamic_shifting:
        return _static(config.shift, levels)
    if mu is None:
        raise ConfigError("a dynamic shift needs mu; give it with the number of steps", field="mu")
    scale = math.exp(mu) if config.time_shift_type == "exponential" else mu
    return scale / (scale + (1 / levels - 1))


def _need_steps(steps: int) -> None:
    if type(steps) is not int or not 1 <= steps <= MOST_STEPS:
        raise ConfigError(f"steps is {steps!r}; it needs a whole number of 1 to {MOST_STEPS}", field="steps")
