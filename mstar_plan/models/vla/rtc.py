"""Real-time chunking: a new chunk of actions that goes on from the one that is still being executed.

Guided: the flow is pulled towards the old chunk, as published (Black et al. 2025, "Real-Time Execution of Action
Chunking Flow Policies"; LeRobot's RTCProcessor). Trained: the first actions are held fixed, and the policy, which was
trained for it, is told that they are without noise ("Training-Time Action Conditioning", arXiv 2512.05964).

Shapes: B rows, S actions of a chunk, A padded action width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self

import torch
from torch import Tensor

from mstar_plan.errors import ConfigError, InvalidInputError

Schedule = Literal["zeros", "ones", "linear", "exp"]
SCHEDULES: tuple[Schedule, ...] = ("zeros", "ones", "linear", "exp")


@dataclass(frozen=True)
class ChunkingConfig:
    """How a chunk goes on from the last one.

    Attributes:
        mode: "guided" works with any policy; "trained" needs one that was trained with clean prefixes.
        schedule: How the pull fades from the delay to the execution horizon.
        max_weight: Most that the guidance may weigh.
        horizon: Actions of the old chunk that pull, counted from now.
        max_delay: Longest clean prefix that the policy was trained with; 0: it was not.
    """

    mode: Literal["guided", "trained"] = "guided"
    schedule: Schedule = "linear"
    max_weight: float = 10.0
    horizon: int = 10
    max_delay: int = 0

    def __post_init__(self) -> None:
        if self.mode not in ("guided", "trained"):
            raise ConfigError(f"chunking mode is {self.mode!r}; use guided or trained", field="mode")
        if self.schedule not in SCHEDULES:
            what = f"chunking schedule is {self.schedule!r}; use one of {', '.join(SCHEDULES)}"
            raise ConfigError(what, field="schedule")
        if not (math.isfinite(self.max_weight) and self.max_weight > 0):
            raise ConfigError(f"max_weight is {self.max_weight}; it needs a positive number", field="max_weight")
        if self.horizon < 1:
            raise ConfigError(f"horizon is {self.horizon}; it needs at least 1 action", field="horizon")
        if self.mode == "trained" and self.max_delay < 1:
            what = "mode 'trained' needs a policy that was trained with clean prefixes (rtc_training_max_delay > 0)"
            raise ConfigError(f"{what}; use 'guided'", field="mode")


def prefix_weights(schedule: Schedule, delay: int, horizon: int, chunk: int) -> Tensor:
    """How much each action of a chunk is pulled towards the old one.

    Args:
        schedule: 1 up to the delay ("zeros"), up to the horizon ("ones"), or falling between the two ("linear", "exp").
        delay: Actions that will have been executed before the chunk is there.
        horizon: Actions after which nothing pulls any more.
        chunk: S.

    Returns:
        [S] float32 in [0, 1].
    """
    weights_S = torch.zeros(chunk)
    start = min(delay, horizon, chunk)
    weights_S[: min(horizon, chunk) if schedule == "ones" else start] = 1.0
    between = min(horizon, chunk) - start
    if schedule in ("linear", "exp") and between > 0:
        fall = torch.linspace(1, 0, between + 2)[1:-1]
        weights_S[start : start + between] = fall if schedule == "linear" else fall * fall.expm1() / (math.e - 1)
    return weights_S


@dataclass(frozen=True, eq=False)
class ChunkPrior:
    """What is known of the chunks of some rows before they are computed; rows without anything join with others.

    Attributes:
        rows: B.
        target: [B, S, A], the old chunk, moved to now, in the policy's own units; None: nothing is known in any row.
        weights: [B, S], how much each action is pulled (guided).
        limit: [B], most that the guidance weighs.
        clean: [B, S], which actions are held fixed (trained); None: none in any row.
    """

    rows: int
    target: Tensor | None = None
    weights: Tensor | None = None
    limit: Tensor | None = None
    clean: Tensor | None = None

    @property
    def guides(self) -> bool:
        """Whether some row may be pulled."""
        return self.weights is not None

    def join_key(self) -> str:
        """All priors of one policy join."""
        return "prior"

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """Joins along B; rows that know nothing get weights of 0, which leave them as they are."""
        rows = sum(part.rows for part in parts)
        known = next((part.target for part in parts if part.target is not None), None)
        if known is None:
            return cls(rows)
        size = known.shape[1:]
        guided = any(part.weights is not None for part in parts)
        clean = any(part.clean is not None for part in parts)
        return cls(
            rows,
            torch.cat([_filled(part.target, (part.rows, *size), known) for part in parts]),
            torch.cat([_filled(p.weights, (p.rows, size[0]), known) for p in parts]) if guided else None,
            torch.cat([_filled(part.limit, (part.rows,), known) for part in parts]) if guided else None,
            torch.cat([_filled(p.clean, (p.rows, size[0]), known, torch.bool) for p in parts]) if clean else None,
        )

    def split(self, sizes: Sequence[int]) -> list[Self]:
        """Parts of `sizes` rows, as views."""
        cuts = [None if each is None else torch.split(each, list(sizes)) for each in self._tensors()]
        return [type(self)(n, *[None if cut is None else cut[i] for cut in cuts]) for i, n in enumerate(sizes)]

    def to(self, device: torch.device) -> Self:
        """The same on another device."""
        return type(self)(self.rows, *[None if each is None else each.to(device) for each in self._tensors()])

    def _tensors(self) -> tuple[Tensor | None, ...]:
        return self.target, self.weights, self.limit, self.clean

    def hold(self, x_BSA: Tensor) -> Tensor:
        """The chunk with its clean actions put in."""
        if self.clean is None:
            return x_BSA
        assert self.target is not None, "a clean prefix without its actions"
        return torch.where(self.clean[..., None], self.target, x_BSA)

    def guide(self, x_BSA: Tensor, v_BSA: Tensor, t_B: Tensor) -> Tensor:
        """The velocity, pulled towards the old chunk.

        v - g * w * (target - (x - t * v)) with tau = 1 - t and g = min(limit, (1 - tau) / tau *
        ((1 - tau)^2 + tau^2) / (1 - tau)^2), as LeRobot 0.6.1 computes it.
        """
        if self.weights is None:
            return v_BSA
        assert self.target is not None, "weights without the actions that pull"
        assert self.limit is not None, "weights without their limit"
        t_B11, w_BS1 = t_B[:, None, None], self.weights[..., None]
        error_BSA = (self.target - (x_BSA - t_B11 * v_BSA)) * w_BS1
        return v_BSA - guidance_weight(t_B, self.limit)[:, None, None] * error_BSA


def guidance_weight(t_B: Tensor, limit_B: Tensor) -> Tensor:
    """g [B] of `ChunkPrior.guide` at times t in (0, 1]; at t = 1 it is the limit."""
    tau_B = 1 - t_B
    square_B = t_B * t_B
    return torch.minimum((t_B / tau_B) * ((square_B + tau_B * tau_B) / square_B), limit_B)


def make_prior(
    config: ChunkingConfig, chunk: int, previous_BnA: Tensor | None, delay: int, horizon: int | None = None
) -> ChunkPrior | None:
    """The prior of a request.

    Args:
        config: How chunks go on.
        chunk: S.
        previous_BnA: [B, n, A] actions that are not executed yet, in the policy's own units and width, n <= S; None:
            there are none.
        delay: How many of them will be executed before the new chunk is there.
        horizon: In the place of the configuration's.

    Returns:
        None where nothing is known.

    Raises:
        InvalidInputError: There are more actions than a chunk has, the delay does not fit, or a number is not finite.
    """
    if previous_BnA is None:
        return None
    rows, n, width = previous_BnA.shape
    if not 0 < n <= chunk:
        raise InvalidInputError(
            f"previous has {n} actions; send 1 to {chunk}, those not executed yet", field="previous"
        )
    if not 0 <= delay <= n:
        raise InvalidInputError(f"delay is {delay}, but previous has {n} actions; send 0 to {n}", field="delay")
    if not bool(previous_BnA.isfinite().all()):
        raise InvalidInputError("previous holds NaN or infinity; send finite actions", field="previous")
    target_BSA = previous_BnA.new_zeros(rows, chunk, width)
    target_BSA[:, :n] = previous_BnA
    if config.mode == "trained":
        return _clean_prior(config, target_BSA, delay)
    weights_S = prefix_weights(config.schedule, delay, min(horizon or config.horizon, n), chunk).to(target_BSA)
    limit_B = target_BSA.new_full((rows,), config.max_weight)
    return ChunkPrior(rows, target_BSA, weights_S.expand(rows, -1), limit_B)


def _clean_prior(config: ChunkingConfig, target_BSA: Tensor, delay: int) -> ChunkPrior | None:
    rows, chunk = target_BSA.shape[:2]
    if delay == 0:
        return None
    most = min(config.max_delay, chunk - 1)
    if delay > most:
        what = f"delay is {delay}; this policy was trained with clean prefixes of up to {most} actions"
        raise InvalidInputError(f"{what}: answer sooner, or use mode 'guided'", field="delay")
    clean_BS = (torch.arange(chunk, device=target_BSA.device) < delay).expand(rows, -1)
    return ChunkPrior(rows, target_BSA, clean=clean_BS)


def _filled(part: Tensor | None, shape: Sequence[int], like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    return like.new_zeros(tuple(shape), dtype=dtype) if part is None else part
