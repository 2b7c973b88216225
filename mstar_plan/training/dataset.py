"""Episodes in memory, cut into training and held-out ones, and random windows out of them.

Shapes: E episodes, T steps, W frames of a window.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mstar_plan.errors import InvalidInputError
from mstar_plan.training.shards import Episodes


@dataclass(frozen=True, eq=False)
class WindowBatch:
    """B windows.

    Attributes:
        frames: [B, W, H_px, W_px, 3] uint8.
        actions: [B, W-1, A] float32.
    """

    frames: Tensor
    actions: Tensor

    def to(self, device: torch.device) -> WindowBatch:
        """Returns the batch on a device."""
        return WindowBatch(self.frames.to(device), self.actions.to(device))


class Windows:
    """Windows of consecutive frames, each start in each episode equally likely.

    Args:
        episodes: Where they come from.
        frames: W, frames a window.

    Raises:
        InvalidInputError: The episodes are shorter than a window.
    """

    def __init__(self, episodes: Episodes, frames: int) -> None:
        if episodes.steps + 1 < frames:
            raise InvalidInputError(
                f"a window of {frames} frames does not fit episodes of {episodes.steps + 1}; collect longer episodes"
            )
        self._episodes = episodes
        self._frames = frames

    def sample(self, rng: np.random.Generator, count: int) -> WindowBatch:
        """Draws B = `count` windows."""
        episode = rng.integers(len(self._episodes), size=count)
        start = rng.integers(self._episodes.steps + 2 - self._frames, size=count)
        frames = np.stack([self._episodes.frames[e, t : t + self._frames] for e, t in zip(episode, start, strict=True)])
        steps = start[:, None] + np.arange(self._frames - 1)
        actions = self._episodes.actions[episode[:, None], steps]
        return WindowBatch(torch.from_numpy(frames), torch.from_numpy(actions))


def split(episodes: Episodes, held_out: float) -> tuple[Episodes, Episodes]:
    """Cuts the first `held_out` share of the episodes off: (training, held out).

    Raises:
        InvalidInputError: One side would be empty.
    """
    count = round(len(episodes) * held_out)
    if not 1 <= count < len(episodes):
        raise InvalidInputError(
            f"{len(episodes)} episodes cannot be split with {held_out:.3g} of them held out; collect more",
            field="held_out",
        )
    training = Episodes(
        episodes.frames[count:],  # views: frames are most of a machine's memory
        episodes.actions[count:],
        episodes.states[count:],
        episodes.positions[count:],
        episodes.seeds[count:],
        episodes.meta,
    )
    return training, episodes.subset(np.arange(count))
