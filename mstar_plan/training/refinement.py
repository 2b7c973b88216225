"""Second stage: the predictor alone, on frozen latents and over longer rollouts than pixels would allow in the time.

With the encoder out of the loop an iteration costs a few percent of one on pixels, and the targets no longer move.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from mstar_plan.errors import ConfigError, InvalidInputError
from mstar_plan.models.jepa import JepaMember
from mstar_plan.training.latents import LatentEpisodes, clocked_steps


@dataclass(frozen=True)
class RefinementConfig:
    """How the predictor is refined.

    Attributes:
        seconds: Wall-clock time; 0 leaves the predictor as it is.
        steps: K, steps of own-fed prediction.
        batch: Rollouts an iteration.
        learning_rate: Peak of AdamW's.
    """

    seconds: float = 60.0
    steps: int = 12
    batch: int = 256
    learning_rate: float = 1e-3

    def __post_init__(self) -> None:
        if not self.seconds >= 0:
            raise ConfigError(f"seconds is {self.seconds}; it needs at least 0", field="seconds")
        for name in ("steps", "batch", "learning_rate"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} is {getattr(self, name)}; it needs a positive number", field=name)


def refine(
    member: JepaMember,
    data: LatentEpisodes,
    config: RefinementConfig,
    *,
    seed: int = 0,
    report: Callable[[float, float], None] | None = None,
) -> int:
    """Trains `member.predictor` in place; returns the iterations.

    Raises:
        InvalidInputError: The episodes are shorter than a rollout.
    """
    if data.steps < config.steps:
        raise InvalidInputError(
            f"refinement.steps is {config.steps}, but episodes have {data.steps} actions; collect longer ones",
            field="steps",
        )
    generator = torch.Generator().manual_seed(seed)

    def loss() -> Tensor:
        episode = torch.randint(len(data.latents), (config.batch,), generator=generator)
        start = torch.randint(data.steps + 1 - config.steps, (config.batch,), generator=generator)
        predicted, errors = data.latents[episode, start], []
        for k in range(config.steps):
            predicted = member.step(predicted, data.actions[episode, start + k])
            errors.append(functional.mse_loss(predicted, data.latents[episode, start + k + 1]))
        return torch.stack(errors).mean()

    parameters = list(member.predictor.parameters())
    return clocked_steps(parameters, loss, seconds=config.seconds, learning_rate=config.learning_rate, report=report)
