"""What a plan costs: distance of predicted embeddings to the goal's, reduced over the horizon, and action penalties.

Shapes: B requests, K candidates, H horizon, M metric width, A action.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.nn import functional

from mstar_plan.errors import ConfigError, did_you_mean

Distance = Callable[[Tensor, Tensor, float], Tensor]

L1_ELEMENTS = 2**20  # differences that are held at a time


@runtime_checkable
class Objective(Protocol):
    """Costs of candidates; smaller is better. Pure, and row by row."""

    def __call__(self, embedded: Tensor, goal: Tensor, actions: Tensor) -> Tensor:
        """Costs [B, K] of embedded [B, K, H, M] against goal [B, M], for actions [B, K, H, A] in [-1, 1] units."""
        ...


def _l1(embedded: Tensor, goal: Tensor, eps: float) -> Tensor:
    if embedded.numel() <= L1_ELEMENTS:
        return (embedded - goal[:, None, None]).abs_().mean(-1)
    step = max(1, L1_ELEMENTS * embedded.shape[1] // embedded.numel())  # token grids: no second copy of all of them
    return torch.cat([(part - goal[:, None, None]).abs_().mean(-1) for part in torch.split(embedded, step, 1)], 1)


def _l2(embedded: Tensor, goal: Tensor, eps: float) -> Tensor:
    return (embedded - goal[:, None, None]).square().sum(-1).add(eps).sqrt()


def _squared(embedded: Tensor, goal: Tensor, eps: float) -> Tensor:
    return (embedded - goal[:, None, None]).square().mean(-1)


def _cosine(embedded: Tensor, goal: Tensor, eps: float) -> Tensor:
    return 1 - functional.cosine_similarity(embedded, goal[:, None, None], dim=-1)


DISTANCES: Mapping[str, Distance] = {"l1": _l1, "l2": _l2, "squared": _squared, "cosine": _cosine}


@dataclass(frozen=True)
class ObjectiveConfig:
    """A distance d_h after each action, a mixture of its reductions over the horizon, and penalties on the actions.

    Attributes:
        distance: "l1" (mean absolute difference), "l2" (sqrt(sum of squares + eps)), "squared" (mean of squares) or
            "cosine" (1 - cosine similarity).
        eps: Rounds "l2" off near the goal, so that its slope goes to zero there.
        mean: Weight of the mean of d over the horizon. It asks to arrive soon and to stay: the default.
        final: Weight of d after the last action. Alone it procrastinates: every way of arriving in time costs the same.
        minimum: Weight of the smallest d.
        total: Weight of the sum of d.
        action: Weight of the mean squared action, in [-1, 1] units.
        change: Weight of the mean squared difference of successive actions, in [-1, 1] units.
    """

    distance: Literal["l1", "l2", "squared", "cosine"] = "l2"
    eps: float = 1e-4
    mean: float = 1.0
    final: float = 0.0
    minimum: float = 0.0
    total: float = 0.0
    action: float = 0.0
    change: float = 0.0

    def __post_init__(self) -> None:
        if self.distance not in DISTANCES:
            raise ConfigError(f"objective.distance is {self.distance!r}{did_you_mean(self.distance, DISTANCES)}")
        for name in ("eps", "mean", "final", "minimum", "total", "action", "change"):
            value = getattr(self, name)
            if not 0 <= value < float("inf"):
                raise ConfigError(f"objective.{name} is {value}; it needs a number >= 0", field=name)
        if not self.mean + self.final + self.minimum + self.total > 0:
            raise ConfigError("objective has no weight on the distance; set one of mean, final, minimum, total above 0")


class LatentObjective:
    """The objective that an `ObjectiveConfig` describes."""

    def __init__(self, config: ObjectiveConfig) -> None:
        self.config = config
        self.distance = DISTANCES[config.distance]
        self.last_frame_only = not (config.mean or config.minimum or config.total)

    def __call__(self, embedded: Tensor, goal: Tensor, actions: Tensor) -> Tensor:
        """See `Objective`."""
        config = self.config
        if self.last_frame_only:
            embedded = embedded[:, :, -1:]
        costs = self._reduce(self.distance(embedded, goal, config.eps))
        if config.action:
            costs = costs + config.action * actions.square().mean((2, 3))
        if config.change and actions.shape[2] > 1:
            costs = costs + config.change * actions.diff(dim=2).square().mean((2, 3))
        return costs

    def _reduce(self, d_BKH: Tensor) -> Tensor:
        config = self.config
        parts: list[tuple[float, Callable[[], Tensor]]] = [
            (config.mean, lambda: d_BKH.mean(2)),
            (config.final, lambda: d_BKH[:, :, -1]),
            (config.minimum, lambda: d_BKH.amin(2)),
            (config.total, lambda: d_BKH.sum(2)),
        ]
        terms = [part() if weight == 1 else weight * part() for weight, part in parts if weight]
        return terms[0] if len(terms) == 1 else torch.stack(terms).sum(0)


def energy_of(config: ObjectiveConfig) -> ObjectiveConfig:
    """The same distance, of the last frame alone and without penalties: what an energy landscape shows."""
    return ObjectiveConfig(distance=config.distance, eps=config.eps, mean=0.0, final=1.0)


def make_objective(config: ObjectiveConfig) -> Objective:
    """The objective that `config` describes."""
    return LatentObjective(config)
