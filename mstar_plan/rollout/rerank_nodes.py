"""The components between a policy and a world model: limits on what is proposed, and what is made of its costs.

Shapes: B requests, K proposals, S actions of a chunk, H actions that are judged, E elites or old chunks, A action.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from mstar_plan.errors import ComponentError, InvalidInputError
from mstar_plan.rollout.constraints import SearchSpace
from mstar_plan.rollout.nodes import inside
from mstar_plan.rollout.planner import Planner, PlannerState, take
from mstar_plan.walks.batch import Batch
from mstar_plan.walks.component import Outputs


class Limit:
    """What a policy proposes [B, K, S, A], and old chunks that may be gone on with, brought inside the limits.

    `warm` [B, E, n, A] are chunks from before, shifted to now, in the units of actions; None: there are none. They are
    candidates like the others, after them, and still (at the centre of the bounds) where they end before a chunk does.
    `held` says how many actions of the first of them will be executed whatever is answered: every chunk begins so.

    Gives the chunks as they may be executed, `actions` [B, K + E, S, A], their `count` (a static), and their first H
    actions for the world model: `judged` in their units, `candidates` in [-1, 1].
    """

    inputs = ("proposed", "proposals", "horizon", "last_action", "warm", "held")
    outputs = ("actions", "judged", "candidates", "count")

    def __init__(self, space: SearchSpace) -> None:
        self.space = space

    def __call__(self, batch: Batch) -> Outputs:
        """Projects them.

        Raises:
            InvalidInputError: Chunks are shorter than the horizon, or old ones do not fit or are shorter than held.
            ComponentError: The policy gave something else than K chunks of actions of this size.
        """
        proposed: Tensor = batch["proposed"]
        count, horizon, size = batch["proposals"], batch["horizon"], self.space.spec.size
        shape = tuple(proposed.shape)
        if proposed.ndim != 4 or shape[1] != count or shape[3] != size:
            raise ComponentError(f"the policy proposed {list(shape)}; the world model needs [B, {count}, S, {size}]")
        if not 1 <= horizon <= shape[2]:
            what = f"horizon is {horizon}; it needs 1 to {shape[2]}, the length of the policy's chunks"
            raise InvalidInputError(what, field="horizon")
        scaled = self._with_warm(self.space.to(proposed.device), proposed, batch["warm"], batch["held"])
        candidates, actions = inside(self.space, scaled, batch["last_action"])
        return {
            "actions": actions,
            "judged": actions[:, :, :horizon],
            "candidates": candidates[:, :, :horizon],
            "count": actions.shape[1],
        }

    def _with_warm(self, space: SearchSpace, proposed: Tensor, warm: Tensor | None, held: int) -> Tensor:
        """All chunks in [-1, 1] units."""
        scaled, length = space.from_units(proposed), proposed.shape[2]
        known = 0 if warm is None else warm.shape[-2]
        if not 0 <= held <= known:
            what = f"held is {held}; it needs 0 to {known}, the actions of the old chunk"
            raise InvalidInputError(what, field="held")
        if warm is None:
            return scaled
        if warm.ndim != 4 or known > length or warm.shape[-1] != proposed.shape[-1]:
            what = f"warm has shape {list(warm.shape)}; it needs [B, E, up to {length}, {proposed.shape[-1]}]"
            raise InvalidInputError(what, field="warm")
        old = functional.pad(space.from_units(warm.to(scaled)), (0, 0, 0, length - known))
        every = torch.cat([scaled, old], 1)
        if held:
            every[:, :, :held] = old[:, :1, :held]
        return every


class Choose:
    """The cheapest proposal: actions [B, K, S, A], costs [B, K] -> best [B, S, A], its cost [B], its number [B].

    What is not finite costs more than anything else.

    Args:
        last: Nothing comes after: where no proposal of a row is finite, there is nothing to answer. Otherwise its cost
            is infinity.
    """

    inputs, outputs = ("actions", "costs"), ("best", "cost", "choice")

    def __init__(self, *, last: bool = True) -> None:
        self.last = last

    def __call__(self, batch: Batch) -> Outputs:
        """Takes it.

        Raises:
            ComponentError: No proposal of a row is finite, and nothing comes after.
        """
        cost, choice = costs_of(batch["actions"], batch["costs"]).min(1)
        if self.last and not bool(cost.isfinite().all()):
            what = f"none of {batch['costs'].shape[1]} proposals is finite at a finite cost"
            raise ComponentError(f"{what}; check the weights of policy and world model, and the pictures")
        return {"best": take(batch["actions"], choice[:, None])[:, 0], "cost": cost, "choice": choice}


class Adopt:
    """The search distribution that a planner fits to judged proposals, as if its own iteration had drawn them.

    Where no proposal of a row is finite, its search starts as it would without proposals.

    Args:
        planner: Whose search goes on from there.
        spread: Smallest spread of any action, as a fraction of the half range, so that proposals that agree do not end
            a search before it has begun.
    """

    inputs, outputs = ("candidates", "costs"), ("mean", "std", "elites")

    def __init__(self, planner: Planner, spread: float = 0.0) -> None:
        self.planner, self.spread = planner, spread

    def __call__(self, batch: Batch) -> Outputs:
        """Fits it."""
        candidates: Tensor = batch["candidates"]
        costs = costs_of(candidates, batch["costs"])
        rows, _, horizon, size = candidates.shape
        fresh = self.planner.init((rows, horizon, size), None, candidates.device)
        fitted: PlannerState = self.planner.refit(fresh, candidates.nan_to_num(0.0, 0.0, 0.0), costs)
        some = costs.isfinite().any(1)[:, None, None]
        return {
            "mean": torch.where(some, fitted.mean, fresh.mean),
            "std": torch.where(some, fitted.std.clamp_min(self.spread), fresh.std),
            "elites": fitted.elites,
        }


class Keep:
    """The better of two plans of each row, by their costs: what a search found, or what it started from.

    A chunk that is longer than the plan is cut to its horizon.
    """

    inputs, outputs = ("found", "found_cost", "best", "best_cost"), ("plan", "cost")

    def __call__(self, batch: Batch) -> Outputs:
        """Compares them."""
        found, best = batch["found"], batch["best"][:, : batch["found"].shape[1]]
        better = batch["found_cost"] <= batch["best_cost"]  # False where the search found nothing finite
        plan = torch.where(better[:, None, None], found, best)
        return {"plan": plan, "cost": torch.where(better, batch["found_cost"], batch["best_cost"])}


def costs_of(actions: Tensor, costs: Tensor) -> Tensor:
    """Costs [B, K] of chunks [B, K, S, A], infinite where either is not finite."""
    sound = costs.isfinite() & actions.isfinite().all(3).all(2)
    return torch.where(sound, costs, torch.inf)
