"""Episodes as latents of a finished encoder: encoded once, so that training on them sees thousands of windows a second.

Shapes: E episodes, T steps, F = T+1 frames, D latent, A action.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mstar_plan.models.jepa import JepaMember
from mstar_plan.training.diagnostics import encode_frames
from mstar_plan.training.schedule import learning_rate_factor
from mstar_plan.training.shards import Episodes

WARMUP = 100  # iterations


@dataclass(frozen=True, eq=False)
class LatentEpisodes:
    """What stays of episodes once they are encoded.

    Attributes:
        latents: [E, F, D].
        actions: [E, T, A].
    """

    latents: Tensor
    actions: Tensor

    @property
    def steps(self) -> int:
        """T, actions an episode."""
        return self.actions.shape[1]


def encode_episodes(member: JepaMember, episodes: Episodes) -> LatentEpisodes:
    """Encodes all frames with the BatchNorm's running statistics; the result is on the member's device."""
    latents = encode_frames(member, episodes.frames).clone()  # a normal tensor: inference tensors cannot be trained on
    return LatentEpisodes(latents, torch.from_numpy(episodes.actions).to(latents.device))


def clocked_steps(
    parameters: list[nn.Parameter],
    loss: Callable[[], Tensor],
    *,
    seconds: float,
    learning_rate: float,
    clip: float = 1.0,
    report: Callable[[float, float], None] | None = None,
) -> int:
    """Minimises `loss()` with AdamW annealed over `seconds`; returns the iterations.

    Args:
        parameters: What to train.
        loss: Draws a batch and returns its loss.
        seconds: Wall-clock time.
        learning_rate: Peak.
        clip: Largest gradient norm.
        report: Gets the share of the time that is over and the loss, about once a second.
    """
    optimiser = torch.optim.AdamW(parameters, learning_rate, weight_decay=1e-4)
    iteration, reported = 0, 0.0
    for spent in _clock(seconds):
        factor = learning_rate_factor(iteration, spent / seconds, warmup=WARMUP)
        for group in optimiser.param_groups:
            group["lr"] = learning_rate * factor
        value = loss()
        optimiser.zero_grad(set_to_none=True)
        torch.autograd.backward(value)
        nn.utils.clip_grad_norm_(parameters, clip)
        optimiser.step()
        iteration += 1
        if report is not None and spent - reported > 1.0:
            reported = spent
            report(spent / seconds, float(value.detach()))
    return iteration


def _clock(seconds: float) -> Iterator[float]:
    """Yields the seconds that are over until there are none left."""
    start = time.monotonic()
    while (spent := time.monotonic() - start) < seconds:
        yield spent
