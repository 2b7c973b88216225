"""Warm start: the last search's result, moved on by the actions that were executed since. Needs numpy alone."""

from __future__ import annotations

import numpy as np

from mstar_plan.errors import InvalidInputError
from mstar_plan.types import ActionSpec, FloatArray, WarmStart


def shift(warm: WarmStart, steps: int, spec: ActionSpec | None = None) -> WarmStart:
    """Drops the first `steps` actions of mean and elites, and puts the centre of the bounds at their ends.

    Args:
        warm: Where the last search ended.
        steps: Actions that were executed since; over the horizon leaves nothing but the centre.
        spec: Gives the centre of the bounds; None for 0 (bounds that are symmetric).

    Raises:
        InvalidInputError: `steps` is negative.
    """
    if steps < 0:
        raise InvalidInputError(f"steps is {steps}; a plan can only be shifted forward, by 0 or more", field="steps")
    if steps == 0:
        return warm
    centre = _centre(warm, spec)
    return WarmStart(_shift(warm.mean, steps, centre), _shift(warm.elites, steps, centre))


def _centre(warm: WarmStart, spec: ActionSpec | None) -> FloatArray:
    if spec is None:
        return np.zeros(warm.mean.shape[1], np.float32)
    return ((spec.low + spec.high) / 2).astype(np.float32)


def _shift(sequences: FloatArray, steps: int, centre: FloatArray) -> FloatArray:
    horizon = sequences.shape[-2]
    moved = np.empty_like(sequences)
    moved[..., : max(0, horizon - steps), :] = sequences[..., steps:, :]
    moved[..., max(0, horizon - steps) :, :] = centre
    return moved
