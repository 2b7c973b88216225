"""The space that planners search: the box of the action bounds, scaled to [-1, 1], and its rate limit.

Shapes: B requests, K candidates, H horizon, A action.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mstar_plan.types import ActionSpec, FloatArray

_Cumulative = Callable[[Tensor, int], Any]
_Pick = Callable[[Tensor, Tensor], Tensor]

# The rate limit is kept this much (relative) below what was asked, so that float32 rounding cannot step over it.
_RATE_MARGIN = 1e-3


class SearchSpace:
    """Projection onto the limits of the actions, and the scaling between the search's [-1, 1] and action units.

    Args:
        spec: Bounds and rate limit in the action's units.
        device: Where the tensors of the search live.
    """

    def __init__(self, spec: ActionSpec, device: torch.device | None = None) -> None:
        self.spec = spec
        self._elsewhere: dict[torch.device, SearchSpace] = {}
        self.low = torch.from_numpy(spec.low).to(device)
        self.high = torch.from_numpy(spec.high).to(device)
        self.centre = (self.low + self.high) / 2
        self.half = (self.high - self.low) / 2
        self.is_unit = bool((spec.low == -1).all() and (spec.high == 1).all())
        self.max_delta: Tensor | None = None
        if spec.max_delta is not None:
            self.max_delta = torch.from_numpy(spec.max_delta).to(device) / self.half * (1 - _RATE_MARGIN)

    def to(self, device: torch.device) -> SearchSpace:
        """The same space on another device; itself where it is there already."""
        if self.low.device == device:
            return self
        if device not in self._elsewhere:
            self._elsewhere[device] = SearchSpace(self.spec, device)
        return self._elsewhere[device]

    def to_units(self, candidates: Tensor) -> Tensor:
        """Scales [..., A] from [-1, 1] to action units, never outside the bounds by rounding."""
        if self.is_unit:
            return candidates
        return torch.clamp(torch.addcmul(self.centre, candidates, self.half), self.low, self.high)

    def from_units(self, actions: Tensor) -> Tensor:
        """Scales [..., A] from action units to [-1, 1]."""
        return actions if self.is_unit else (actions - self.centre) / self.half

    def project(self, candidates: Tensor, last: Tensor | None = None) -> Tensor:
        """The nearest candidates [B, K, H, A] inside the limits; what is scored is what is returned.

        Args:
            candidates: [B, K, H, A] in [-1, 1] units.
            last: [B, A] action that was executed just before, in [-1, 1] units; None where there was none.
        """
        inside = candidates.clamp(-1.0, 1.0)
        if self.max_delta is None:
            return inside
        return limit_rate(inside, self.max_delta, None if last is None else last.clamp(-1.0, 1.0))


def limit_rate(sequences: Tensor, max_delta: Tensor, last: Tensor | None = None) -> Tensor:
    """The sequences [B, K, H, A] nearest in the largest change of any action, with steps of at most `max_delta` [A].

    A rate limit is a Lipschitz condition, and the mean of a sequence's largest Lipschitz minorant and smallest
    majorant (McShane 1934) is its best uniform approximation by Lipschitz sequences. Both are running minima and maxima
    along the horizon, so there is no loop over it, bounds are kept, and a sequence inside the limit stays as it is.

    Args:
        sequences: [B, K, H, A].
        max_delta: [A] largest change between successive actions.
        last: [B, A] action before the first one, which then limits the first as well.
    """
    steps = torch.arange(sequences.shape[2], dtype=sequences.dtype, device=sequences.device)
    ramp = steps[:, None] * max_delta
    below = _running(torch.cummin, sequences, ramp, torch.minimum)
    above = _running(torch.cummax, sequences, -ramp, torch.maximum)
    limited = (below + above) / 2
    if last is not None:
        reach = ramp + max_delta
        start = last[:, None, None, :]
        limited = torch.clamp(limited, start - reach, start + reach)
    return limited


def _running(cumulative: _Cumulative, sequences: Tensor, ramp: Tensor, pick: _Pick) -> Tensor:
    """pick over j of (x_j + |ramp_h - ramp_j|), from both sides of h."""
    forward = cumulative(sequences - ramp, 2)[0] + ramp
    backward = cumulative((sequences + ramp).flip(2), 2)[0].flip(2) - ramp
    return pick(forward, backward)


@functools.lru_cache(maxsize=64)
def _with_slack(spec: ActionSpec) -> tuple[FloatArray, FloatArray]:
    """The bounds, wider by what float32 rounding may cost."""
    slack = np.float32(1e-5) * (spec.high - spec.low)
    return spec.low - slack, spec.high + slack


def worst_violation(actions: FloatArray, spec: ActionSpec, last: FloatArray | None = None, *, rate: bool = True) -> str:
    """Says in words how actions [H, A] break the limits; empty where they keep them (to float32 rounding).

    Args:
        actions: [H, A] in the action's units.
        spec: The limits.
        last: [A] action that was executed just before, if there was one.
        rate: Look at the rate limit as well.
    """
    low, high = _with_slack(spec)
    if actions.size and not ((actions >= low) & (actions <= high)).all():
        over = max((actions - spec.high).max(), (spec.low - actions).max())
        return f"an action is {over:.3g} outside the bounds {spec.low.tolist()}..{spec.high.tolist()}"
    if rate and spec.max_delta is not None:
        slack = high - spec.high
        before = actions[:1] if last is None else last[None]
        jump = abs(np.diff(actions, axis=0, prepend=before)) - spec.max_delta - slack
        if jump.max() > 0:
            return f"successive actions differ by {jump.max():.3g} more than max_delta {spec.max_delta.tolist()}"
    return ""
