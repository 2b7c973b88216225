"""Third stage: a head on frozen latents whose Euclidean distance is the time between two states.

After temporal-distance learning (Hartikainen et al. 2020, arXiv 1907.08225; Wang et al. 2023, arXiv 2304.01203):
pairs out of one episode are pulled to the number of steps between them. The shortest way is at most as long as the way
that was seen, so errors above the target weigh more than errors below it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mstar_plan.errors import ConfigError
from mstar_plan.models.jepa import JepaMember
from mstar_plan.training.latents import LatentEpisodes, clocked_steps

STEPS_PER_UNIT = 10.0  # distance 1 is ten control steps: it keeps targets of order one
ROUNDING = 1e-4  # added to the squared distance: a gradient at zero distance


@dataclass(frozen=True)
class HeadConfig:
    """How the distance head is trained.

    Attributes:
        seconds: Wall-clock time; without a head in the model it is not used.
        batch: Pairs an iteration.
        learning_rate: Peak of AdamW's.
        longest: Steps from which on two states count as equally far.
        strangers: Share of the pairs that come from two episodes, and count as `longest` apart.
        above: Weight of the squared error where the distance is too long; where it is too short it has 1 - above.
    """

    seconds: float = 30.0
    batch: int = 1024
    learning_rate: float = 2e-3
    longest: int = 30
    strangers: float = 0.15
    above: float = 0.7

    def __post_init__(self) -> None:
        for name in ("seconds", "batch", "learning_rate", "longest"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} is {getattr(self, name)}; it needs a positive number", field=name)
        for name in ("strangers", "above"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; it needs a share from 0 to under 1", field=name)


def train_head(
    member: JepaMember,
    data: LatentEpisodes,
    config: HeadConfig,
    *,
    seed: int = 0,
    report: Callable[[float, float], None] | None = None,
) -> int:
    """Trains `member.head` in place; returns the iterations."""
    head = member.head
    assert head is not None
    generator = torch.Generator().manual_seed(seed)

    def loss() -> Tensor:
        first, second, target = draw_pairs(data.latents, config, generator)
        distance = head_distance(head, first, second)
        error = distance - target
        weight = torch.where(error > 0, config.above, 1.0 - config.above)
        return (weight * error.square()).mean()

    parameters = list(head.parameters())
    return clocked_steps(parameters, loss, seconds=config.seconds, learning_rate=config.learning_rate, report=report)


def head_distance(head: nn.Module, first: Tensor, second: Tensor) -> Tensor:
    """Distance [...] between latents [..., D], in units of ten steps."""
    squared = (head(first) - head(second)).square().sum(dim=-1)
    return torch.sqrt(squared + ROUNDING)


def draw_pairs(z_EFD: Tensor, config: HeadConfig, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Draws latents [B, D] of two states each and the distance [B] that they should have; short gaps are likelier."""
    episodes, frames = z_EFD.shape[:2]
    count = config.batch
    uniform = torch.rand(2, count, generator=generator)
    episode = torch.randint(episodes, (count,), generator=generator)
    first = torch.randint(frames, (count,), generator=generator)
    gap = (uniform[0].square() * (frames - first)).long()  # the square makes short gaps likelier
    second = first + gap
    other = torch.randint(episodes, (count,), generator=generator)
    stranger = (uniform[1] < config.strangers) & (other != episode)
    target = torch.where(stranger, config.longest, gap.clamp_max(config.longest)) / STEPS_PER_UNIT
    return z_EFD[episode, first], z_EFD[torch.where(stranger, other, episode), second], target.to(z_EFD.device)
