"""Predicted against reached, as far as latents can show it: distances to the goal, and the frame nearest a prediction.

A joint-embedding model has no decoder, so no picture of a prediction exists. What can be shown is how far from the goal
the model believed to come, in its own latent space, and which frame of the episode has the latent nearest to that end.

Shapes: S steps, H horizon, N latent tokens, D width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mstar_plan.evaluation.records import Recording
from mstar_plan.types import FloatArray, ImageArray

Encode = Callable[[ImageArray], FloatArray]  # frame [H_px, W_px, 3] uint8 -> latent [N, D]


@dataclass(frozen=True, eq=False)
class Foresight:
    """What was predicted at each step of an episode, beside what came.

    Attributes:
        reached: [S + 1] latent distance of each frame to the goal.
        predicted: For each moment [H] latent distance to the goal along its plan; the last one that was made where the
            controller was not asked, None before the first one and where plans hold no latents.
        nearest: For each moment the number of the moment whose frame is nearest to the plan's end; S + 1 is the goal.
        made_at: For each moment the number of the moment that its plan was made at.
    """

    reached: FloatArray
    predicted: tuple[FloatArray | None, ...]
    nearest: tuple[int | None, ...]
    made_at: tuple[int, ...]

    @property
    def longest(self) -> int:
        """H of the longest prediction; 0 without any."""
        return max((len(p) for p in self.predicted if p is not None), default=0)


def look_ahead(recording: Recording, encode: Encode) -> Foresight:
    """Encodes all frames of a recording and compares them with the latents that its plans predicted.

    Args:
        recording: The episode; its plans need `predicted` latents, else there is nothing to show.
        encode: The encoder of the model that planned.
    """
    goal = _flat(encode(recording.goal_frame))
    frames = np.stack([_flat(encode(step.frame)) for step in recording.steps])
    library = np.concatenate([frames, goal[None]])
    predicted: list[FloatArray | None] = []
    nearest: list[int | None] = []
    made_at: list[int] = []
    for index, step in enumerate(recording.steps):
        if step.plan is not None:
            latents = step.plan.predicted
            made_at.append(index)
            predicted.append(None if latents is None else latent_distance(_flat(latents, keep=1), goal))
            nearest.append(None if latents is None else _most_like(_flat(latents[-1]), library))
        else:  # the last plan goes on
            made_at.append(made_at[-1] if made_at else 0)
            predicted.append(predicted[-1] if predicted else None)
            nearest.append(nearest[-1] if nearest else None)
    return Foresight(latent_distance(frames, goal), tuple(predicted), tuple(nearest), tuple(made_at))


def latent_distance(latents: FloatArray, goal: FloatArray) -> FloatArray:
    """Returns the root of the mean squared difference, [...] for latents [..., M] and a goal [M]."""
    distances: FloatArray = np.sqrt(np.mean(np.square(latents - goal), axis=-1)).astype(np.float32)
    return distances


def _most_like(latent: FloatArray, library: FloatArray) -> int:
    return int(np.argmin(latent_distance(library, latent)))


def _flat(latent: FloatArray, keep: int = 0) -> FloatArray:
    array: npt.NDArray[np.float32] = np.asarray(latent, np.float32)
    return array.reshape(*array.shape[:keep], -1)
