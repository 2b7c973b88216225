"""The components of a plan walk: a world model's, a planner's and an objective's functions, with named ports.

Shapes: B requests, T frames, K candidates, E elites, H horizon, N latent tokens, D width, M metric width, A action.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

from mstar_plan.models.world_model import WorldModel
from mstar_plan.rollout.constraints import SearchSpace
from mstar_plan.rollout.objective import Objective
from mstar_plan.rollout.planner import Planner, PlannerState, converged, take
from mstar_plan.walks.batch import Batch
from mstar_plan.walks.component import Component, Outputs


class Encode:
    """Frames [B, T, H_px, W_px, 3] uint8 to latents [B, T, N, D]."""

    inputs, outputs = ("frames",), ("latents",)

    def __init__(self, model: WorldModel) -> None:
        self.model = model

    def __call__(self, batch: Batch) -> Outputs:
        """Encodes every frame once."""
        frames = batch["frames"]
        latents = self.model.encode(frames.flatten(0, 1))
        return {"latents": latents.reshape(*frames.shape[:2], *latents.shape[1:])}


class Embed:
    """Latents [..., N, D] to the space [..., M] in which distances are measured."""

    inputs, outputs = ("latents",), ("embedded",)

    def __init__(self, model: WorldModel) -> None:
        self.model = model

    def __call__(self, batch: Batch) -> Outputs:
        """Embeds them."""
        return {"embedded": self.model.embed(batch["latents"])}


class Begin:
    """Starts `candidates` rollouts from the context: earlier latents (or None) and those of the request's frames."""

    inputs = ("latents", "context_latents", "context_actions", "state", "candidates", "horizon")
    outputs = ("latent", "state", "cache")

    def __init__(self, model: WorldModel) -> None:
        self.model = model

    def __call__(self, batch: Batch) -> Outputs:
        """Joins the context and asks the model to begin."""
        context, earlier = batch["latents"], batch["context_latents"]
        if earlier is not None:
            context = torch.cat([earlier, context], 1)
        actions = batch["context_actions"] if self.model.spec.context_frames > 1 else None
        latent, state, cache = self.model.begin(context, actions, batch["state"], batch["candidates"], batch["horizon"])
        return {"latent": latent, "state": state, "cache": cache}


class Predict:
    """One step of all rollouts: latent [B, K, N, D] under action [B, K, A]."""

    inputs, outputs = ("latent", "state", "action", "cache"), ("latent", "state", "cache")

    def __init__(self, model: WorldModel) -> None:
        self.model = model

    def __call__(self, batch: Batch) -> Outputs:
        """Predicts it."""
        values = batch.values
        latent, state, cache = self.model.predict(values["latent"], values["state"], values["action"], values["cache"])
        return {"latent": latent, "state": state, "cache": cache}


class Init:
    """The search distribution at the start, fresh or from a warm start (mean [B, H, A], elites [B, E, H, A])."""

    inputs, outputs = ("latents", "warm_mean", "warm_elites", "horizon"), ("mean", "std", "elites")

    def __init__(self, planner: Planner, space: SearchSpace) -> None:
        self.planner, self.space = planner, space

    def __call__(self, batch: Batch) -> Outputs:
        """Scales a warm start to [-1, 1], and asks the planner to begin."""
        latents, mean = batch["latents"], batch["warm_mean"]
        space = self.space.to(latents.device)
        warm = None
        if mean is not None:
            mean, elites = space.from_units(mean), space.from_units(batch["warm_elites"])
            warm = PlannerState(mean, mean, elites)
        shape = (latents.shape[0], batch["horizon"], self.space.spec.size)
        state = self.planner.init(shape, warm, latents.device)
        return {"mean": state.mean, "std": state.std, "elites": state.elites}


class Propose:
    """Candidates [B, K, H, A] inside the limits: in [-1, 1] for the planner, and as actions in their units."""

    inputs = ("mean", "std", "elites", "seed", "iteration", "samples", "last_action")
    outputs = ("candidates", "actions")

    def __init__(self, planner: Planner, space: SearchSpace) -> None:
        self.planner, self.space = planner, space

    def __call__(self, batch: Batch) -> Outputs:
        """Asks the planner, then projects, so that what is scored is what can be executed."""
        state = PlannerState(batch["mean"], batch["std"], batch["elites"])
        proposed = self.planner.propose(state, batch["seed"], batch["iteration"], batch["samples"])
        candidates, actions = inside(self.space, proposed, batch["last_action"])
        return {"candidates": candidates, "actions": actions}


class Hold:
    """A grid of actions [B, K, A], each held for `repeat` steps: [B, K, H, A] in [-1, 1] and in their units."""

    inputs, outputs = ("grid", "repeat"), ("candidates", "actions")

    def __init__(self, space: SearchSpace) -> None:
        self.space = space

    def __call__(self, batch: Batch) -> Outputs:
        """Repeats them as views."""
        actions = batch["grid"][:, :, None].expand(-1, -1, batch["repeat"], -1)
        return {"candidates": self.space.to(actions.device).from_units(actions), "actions": actions}


class CutTiles:
    """Candidates in tiles of a fixed number, the last one padded with zeros, so that shapes do not depend on K."""

    inputs, outputs = ("candidates", "actions", "tile"), ("tiled_candidates", "tiled_actions", "tiles")

    def __call__(self, batch: Batch) -> Outputs:
        """Cuts [B, K, H, A] to [B, tiles, tile, H, A]."""
        tile, samples = batch["tile"], batch["candidates"].shape[1]
        tiles = -(-samples // tile)
        padding = (0, 0, 0, 0, 0, tiles * tile - samples)
        padded = [functional.pad(batch[name], padding) for name in ("candidates", "actions")]
        cut = [value.reshape(value.shape[0], tiles, tile, *value.shape[2:]) for value in padded]
        return {"tiled_candidates": cut[0], "tiled_actions": cut[1], "tiles": tiles}


class Score:
    """Costs [B, K] of embedded rollouts [B, K, H, M] against the goal [B, 1, M]."""

    inputs, outputs = ("embedded", "goal", "candidates"), ("costs",)

    def __init__(self, objective: Objective) -> None:
        self.objective = objective

    def __call__(self, batch: Batch) -> Outputs:
        """Asks the objective."""
        return {"costs": self.objective(batch["embedded"], batch["goal"][:, 0], batch["candidates"])}


class Energy:
    """Costs [B, K] of embedded last frames [B, K, M] against the goal [B, 1, M]."""

    inputs, outputs = ("embedded", "goal", "candidates"), ("costs",)

    def __init__(self, objective: Objective) -> None:
        self.objective = objective

    def __call__(self, batch: Batch) -> Outputs:
        """Asks the objective, as after a single step."""
        return {"costs": self.objective(batch["embedded"][:, :, None], batch["goal"][:, 0], batch["candidates"])}


class Refit:
    """The next distribution, and this iteration's best cost [B] and, where they may be the plan, actions [B, H, A].

    A cost of infinity: none is finite.
    """

    inputs = ("mean", "std", "elites", "candidates", "actions", "costs", "samples")

    def __init__(self, planner: Planner) -> None:
        self.planner = planner
        self.tolerance = planner.config.tolerance
        asked = {"best_actions": planner.returns_best, "converged": self.tolerance > 0}  # the rest always is
        self.outputs = ("mean", "std", "elites", "best_cost", "samples", *(name for name in asked if asked[name]))

    def __call__(self, batch: Batch) -> Outputs:
        """Refits; costs of padding are cut off."""
        candidates = batch["candidates"]
        costs = batch["costs"][:, : candidates.shape[1]]
        old = PlannerState(batch["mean"], batch["std"], batch["elites"])
        new = self.planner.refit(old, candidates, costs)
        best_cost, best = costs.nan_to_num(torch.inf, torch.inf, torch.inf).min(1)
        fitted = {
            "mean": new.mean,
            "std": new.std,
            "elites": new.elites,
            "best_cost": best_cost,
            "samples": self.planner.next_samples(batch["samples"]),
        }
        if self.planner.returns_best:
            fitted["best_actions"] = take(batch["actions"], best[:, None])[:, 0]
        if self.tolerance:
            fitted["converged"] = converged(new, self.tolerance)
        return fitted


class Answer:
    """The plan of a planner that does not return its best candidate: as one candidate, inside the limits."""

    inputs = ("mean", "std", "elites", "last_action")
    outputs = ("candidates", "actions", "count")

    def __init__(self, planner: Planner, space: SearchSpace) -> None:
        self.planner, self.space = planner, space

    def __call__(self, batch: Batch) -> Outputs:
        """Asks the planner, then projects: [B, 1, H, A] in [-1, 1] and in the action's units."""
        answer = self.planner.answer(PlannerState(batch["mean"], batch["std"], batch["elites"]))
        candidates, actions = inside(self.space, answer[:, None], batch["last_action"])
        return {"candidates": candidates, "actions": actions, "count": 1}


class Conclude:
    """The only candidate and its cost, [B, 1, H, A] and [B, 1], as plan [B, H, A] and cost [B]."""

    inputs, outputs = ("actions", "costs"), ("plan", "cost")

    def __call__(self, batch: Batch) -> Outputs:
        """Takes it."""
        return {"plan": batch["actions"][:, 0], "cost": batch["costs"][:, 0]}


def inside(space: SearchSpace, candidates: Tensor, last_action: Tensor | None) -> tuple[Tensor, Tensor]:
    """Candidates [B, K, H, A] projected onto the limits, in [-1, 1] and as actions in their units."""
    space = space.to(candidates.device)
    candidates = space.project(candidates, None if last_action is None else space.from_units(last_action))
    return candidates, space.to_units(candidates)


def plan_components(
    model: WorldModel, planner: Planner, objective: Objective, energy: Objective
) -> Mapping[str, Component]:
    """All components of the plan walks over one model, by name; `energy` is what a landscape shows."""
    space = SearchSpace(model.spec.action)
    answer: dict[str, Component] = {}
    if not planner.returns_best:
        answer = {"answer": Answer(planner, space), "conclude": Conclude()}
    return {
        "encode": Encode(model),
        "embed": Embed(model),
        "begin": Begin(model),
        "predict": Predict(model),
        "init": Init(planner, space),
        "propose": Propose(planner, space),
        "cut_tiles": CutTiles(),
        "score": Score(objective),
        "refit": Refit(planner),
        **answer,
        "hold": Hold(space),
        "energy": Energy(energy),
    }
