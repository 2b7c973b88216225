"""Normalisers: the affine rules between a robot's numbers and those of a published model, and their inverses.

The rules are those of LeRobot's `processor/normalize_processor.py` (0.6.1), down to where an epsilon goes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

import torch
from torch import Tensor

from mstar_plan.errors import ConfigError, InvalidInputError, did_you_mean

Rule = Literal["mean_std", "min_max", "quantiles", "quantile10", "identity"]
EPS = 1e-8
# The two statistics that a rule reads: the centre and the spread, or the low and the high end.
STATISTICS: Mapping[str, tuple[str, str]] = {
    "mean_std": ("mean", "std"),
    "min_max": ("min", "max"),
    "quantiles": ("q01", "q99"),
    "quantile10": ("q10", "q90"),
}


@dataclass(frozen=True, eq=False)
class Normaliser:
    """Maps values to what a model was trained on, and back.

    With mean_std, x becomes (x - mean) / (std + eps), and back x * std + mean. The other rules map [low, high] to
    [-1, 1]; where low and high are equal, eps stands for their difference, so that the value low becomes -1.

    Attributes:
        rule: Which.
        stats: {name: [..., D] or [C, 1, 1] float32} of at least the two that the rule reads (`STATISTICS`).
        eps: What keeps a division finite.
    """

    rule: Rule = "identity"
    stats: Mapping[str, Tensor] = field(default_factory=dict)
    eps: float = EPS

    def __post_init__(self) -> None:
        if self.rule not in get_args(Rule):
            raise ConfigError(
                f"rule {self.rule!r} is no normaliser{did_you_mean(self.rule, get_args(Rule))}", field="rule"
            )
        if not 0 < self.eps < 1:
            raise ConfigError(f"eps of a normaliser is {self.eps!r}; it needs a number in (0, 1)", field="eps")
        for name in STATISTICS.get(self.rule, ()):
            if name not in self.stats:
                raise ConfigError(f"rule {self.rule} needs {name!r}{did_you_mean(name, self.stats)}", field=name)
            if not bool(self.stats[name].isfinite().all()):
                raise ConfigError(f"statistic {name!r} holds NaN or infinity: it was never measured", field=name)
        self._check_pair()

    def _check_pair(self) -> None:
        if self.rule == "identity":
            return
        first, second = STATISTICS[self.rule]
        low, high = self.stats[first], self.stats[second]
        if low.shape != high.shape or low.ndim == 0:
            raise ConfigError(
                f"{first!r} is {list(low.shape)} and {second!r} {list(high.shape)}; both need one shape [D]",
                field=first,
            )
        wrong = high < (0 if self.rule == "mean_std" else low)
        if bool(wrong.any()):
            raise ConfigError(f"{second!r} is under {'0' if second == 'std' else repr(first)} in a place", field=second)

    @property
    def width(self) -> int | None:
        """D, the size of the last axis that it takes (1: any); None where it takes all."""
        return None if self.rule == "identity" else int(self.stats[STATISTICS[self.rule][0]].shape[-1])

    def normalise(self, x: Tensor) -> Tensor:
        """Returns x [..., D] on the model's scale.

        Raises:
            InvalidInputError: The last axes are not those of the statistics.
        """
        if self.rule == "identity":
            return x
        low, high = self._pair(x)
        if self.rule == "mean_std":
            return (x - low) / (high + self.eps)
        return 2.0 * (x - low) / self._span(low, high) - 1.0

    def unnormalise(self, x: Tensor) -> Tensor:
        """Returns x [..., D] on the robot's scale.

        Raises:
            InvalidInputError: The last axes are not those of the statistics.
        """
        if self.rule == "identity":
            return x
        low, high = self._pair(x)
        if self.rule == "mean_std":
            return x * high + low
        return (x + 1.0) / 2.0 * self._span(low, high) + low

    def _span(self, low: Tensor, high: Tensor) -> Tensor:
        span = high - low
        return torch.where(span == 0, torch.full_like(span, self.eps), span)

    def _pair(self, x: Tensor) -> tuple[Tensor, Tensor]:
        first, second = (self.stats[name] for name in STATISTICS[self.rule])
        shape = first.shape
        fits = x.ndim >= len(shape) and all(
            want in (1, have) for have, want in zip(x.shape[x.ndim - len(shape) :], shape, strict=True)
        )
        if not fits:
            raise InvalidInputError(
                f"values of shape {list(x.shape)} meet statistics of shape {list(shape)}; the last axes must agree"
            )
        dtype = x.dtype if x.is_floating_point() else torch.float32
        return first.to(x.device, dtype), second.to(x.device, dtype)
