"""Compute policies: how much work the iterations of a loop are worth. None is off, and bit-equal to no policy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mstar_plan.errors import ConfigError, InvalidInputError, did_you_mean
from mstar_plan.walks.component import ComputePolicy, LoopPolicy


@dataclass(frozen=True)
class Patience:
    """Ends a loop when a value (smaller is better) has stopped improving.

    A row improves when it falls below its best so far by more than `tolerance`; NaN never improves. The loop ends
    after `patience` iterations in a row in which no row of the request improved.

    Attributes:
        loop: Name of the loop; others are left alone.
        value: Wire [B, ...] that the loop's body writes.
        tolerance: Improvement that does not count any more, in the value's unit.
        patience: Iterations.
    """

    loop: str = "search"
    value: str = "best_cost"
    tolerance: float = 0.0
    patience: int = 2

    def __post_init__(self) -> None:
        if not (math.isfinite(self.tolerance) and self.tolerance >= 0):
            raise InvalidInputError(f"tolerance is {self.tolerance}; it needs a number >= 0", field="tolerance")
        if isinstance(self.patience, bool) or self.patience < 1:
            raise InvalidInputError(f"patience is {self.patience!r}; it needs at least 1", field="patience")

    def start(self, loop: str, values: Mapping[str, Any]) -> LoopPolicy | None:
        """See `ComputePolicy`."""
        return _PatienceRun(self) if loop == self.loop else None


class _PatienceRun:
    def __init__(self, policy: Patience) -> None:
        self._policy = policy
        self._best: Tensor | None = None
        self._stalled = 0

    def before(self, iteration: int, values: Mapping[str, Any]) -> Mapping[str, Any]:
        return {}

    def after(self, iteration: int, values: Mapping[str, Any]) -> bool:
        policy = self._policy
        new = values.get(policy.value)
        if not isinstance(new, Tensor):
            raise InvalidInputError(
                f"policy patience watches {policy.value!r} in loop {policy.loop!r}, which writes no such tensor"
                f"{did_you_mean(policy.value, [n for n, v in values.items() if isinstance(v, Tensor)])}",
                field="policy",
            )
        new = torch.where(new.isnan(), math.inf, new)
        if self._best is None:
            self._best = new
            return False
        better = new < self._best - policy.tolerance
        self._stalled = 0 if bool(better.any()) else self._stalled + 1
        self._best = torch.where(better, new, self._best)
        return self._stalled >= policy.patience


_POLICIES: Mapping[str, Callable[[], ComputePolicy | None]] = {"off": lambda: None, "patience": Patience}


def make_policy(name: str) -> ComputePolicy | None:
    """A compute policy with its defaults, by name: "off" or "patience".

    Raises:
        ConfigError: There is none of that name.
    """
    if name not in _POLICIES:
        raise ConfigError(f"there is no compute policy {name!r}{did_you_mean(name, _POLICIES)}", field="policy")
    return _POLICIES[name]()
