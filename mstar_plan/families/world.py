"""World models as a family: faces for the walks of a planning graph, so that any wire may encode, roll out and plan.

Shapes: B rows, T frames, C context frames, N latent tokens, D width, K candidates, H horizon, E elites, A action,
P proprioception. Actions, means, spreads and elites are in the action's units, on the way in and on the way out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from mstar_plan.errors import ConfigError, InvalidInputError, LimitExceededError
from mstar_plan.families.face import Port, WalkFace
from mstar_plan.families.servable import Servable
from mstar_plan.families.world_ports import actions, goal_port, integer, latents, presenter, view
from mstar_plan.models.world_model import ModelSpec
from mstar_plan.rollout.limits import MIB, PlanLimits
from mstar_plan.rollout.nodes import Propose
from mstar_plan.rollout.plan_walk import CONTEXT, GOALS, landscape_name, walk_name
from mstar_plan.rollout.planner import Planner
from mstar_plan.walks.graph import Graph

Values = Mapping[str, Any]
Footprint = Callable[[int, int], int]
TILE = 32  # candidates in one call of a plan in tiles, if a request does not say


def world_servable(
    name: str,
    graph: Graph,
    spec: ModelSpec,
    *,
    limits: PlanLimits | None = None,
    footprint: Footprint | None = None,
) -> Servable:
    """Returns a planning graph as a family; its first walk is "encode".

    Args:
        name: What requests call it.
        graph: What `plan_graph` made of the model.
        spec: Of the model.
        limits: The most that one request may ask for; rows times candidates count as samples.
        footprint: Bytes that rolling out (candidates, horizon) holds; None: nothing to speak of.

    Raises:
        ConfigError: The graph is none of planning.
    """
    propose = graph.components.get("propose")
    if not isinstance(propose, Propose):
        raise ConfigError(f"graph {graph.name!r} does not plan: it has no planner; make it with plan_graph", field=name)
    world = _World(spec, propose.planner, limits or PlanLimits(), footprint)
    faces = [_encode(spec), _rollout(world), *(_landscape(world, goal) for goal in GOALS)]
    faces[2:2] = [_plan(world, goal, tiled) for tiled in (False, True) for goal in GOALS]
    plain = {face.walk: replace(face, present=presenter(spec)) for face in faces}
    return Servable(name=name, graph=graph, faces=plain, description=spec.description, threads=spec.threads)


@dataclass(frozen=True, eq=False)
class _World:
    """What all faces of a model need."""

    spec: ModelSpec
    planner: Planner
    limits: PlanLimits
    footprint: Footprint | None

    def allow(self, candidates: int, horizon: int, iterations: int = 1, *, tile: int | None = None) -> None:
        """Refuses work that is none, or more than one request may ask for; `candidates` are those of all rows."""
        spec, limits = self.spec, self.limits
        asked = {"samples": candidates, "horizon": horizon, "iterations": iterations}
        most = (limits.max_samples, min(limits.max_horizon, spec.max_horizon), limits.max_iterations)
        for (what, value), limit in zip(asked.items(), most, strict=True):
            if value < 1:
                raise InvalidInputError(f"{what} is {value}; it needs at least 1", field=what)
            if value > limit:
                raise LimitExceededError(f"{what} is {value}; at most {limit} are taken", field=what)
        if tile is not None and not 1 <= tile <= limits.max_samples:
            raise InvalidInputError(f"tile is {tile}; it needs 1 to {limits.max_samples}", field="tile")
        if self.footprint is None or limits.max_memory_mb == 0:
            return
        held = self.footprint(candidates if tile is None else tile, horizon) / MIB
        if held > limits.max_memory_mb:
            what = f"rolling out model {spec.name!r} over {horizon} steps would hold {held:.0f} MiB"
            cure = f"at most {limits.max_memory_mb} MiB are taken: send fewer candidates, or plan in smaller tiles"
            raise LimitExceededError(f"{what}; {cure}", field="samples")

    def bounded(self, values: Values, *names: str) -> None:
        """Refuses actions [..., A] outside the bounds."""
        action = self.spec.action
        for name in names:
            sent: Tensor | None = values.get(name)
            if sent is None:
                continue
            low, high = (torch.from_numpy(bound).to(sent.device) for bound in (action.low, action.high))
            slack = 1e-5 * (high - low)
            if bool(((sent > high + slack) | (sent < low - slack)).any()):
                what = f"{name} reaches {sent.abs().max().item():.3g}, outside {low.tolist()}..{high.tolist()}"
                raise InvalidInputError(f"{what}; send it in {', '.join(action.units)}", field=name)

    def seen(self, values: Values) -> dict[str, Any]:
        """The walk's inputs for what is seen now."""
        needed = self.spec.context_frames
        latents = values.get("context_latents")
        count = values["frames"].shape[1] + (0 if latents is None else latents.shape[1])
        if count != needed:
            what = f"frames and context_latents are {count} together; model {self.spec.name!r} sees {needed}"
            raise InvalidInputError(f"{what}: send {needed}, oldest first", field="frames")
        self.bounded(values, "context_actions", "last_action")
        return {name: values.get(name) for name in CONTEXT}


def _encode(spec: ModelSpec) -> WalkFace:
    frames = {"frames": replace(view(spec)["frames"], description="pictures")}
    return WalkFace("encode", frames, {"latents": latents(spec, None, "of each")}, description="Encodes pictures.")


def _rollout(world: _World) -> WalkFace:
    spec = world.spec

    def prepare(values: Values) -> Values:
        rows, candidates, horizon, _ = values["actions"].shape
        world.allow(rows * candidates, horizon)
        world.bounded(values, "actions")
        return {**world.seen(values), "actions": values["actions"], "candidates": candidates, "horizon": horizon}

    return WalkFace(
        "rollout",
        {**view(spec), "actions": actions(spec, (None, None), "K sequences of H actions")},
        {"predicted": Port(shape=(None, None, None, *spec.latent_shape), description="latents after each action")},
        description="Predicts what follows from actions.",
        prepare=prepare,
    )


def _plan(world: _World, goal: str, tiled: bool) -> WalkFace:
    spec, config = world.spec, world.planner.config
    rate = spec.action.max_delta is not None

    def prepare(values: Values) -> Values:
        rows, horizon, samples = len(values["frames"]), values["horizon"], values["samples"]
        if values["seed"] < 0:
            raise InvalidInputError(f"seed is {values['seed']}; it needs at least 0", field="seed")
        world.allow(rows * samples, horizon, values["iterations"], tile=rows * values["tile"] if tiled else None)
        mean, elites = _warm(values, horizon)
        fewest = max(config.fewest_samples, 0 if elites is None else elites.shape[1] + 2)
        if samples < fewest:
            raise InvalidInputError(f"samples is {samples}; this search needs at least {fewest}", field="samples")
        world.bounded(values, "warm_mean", "warm_elites")
        executed = values.get("context_actions")
        return {
            **world.seen(values),
            **{name: values[name] for name in (goal, "horizon", "iterations", "samples", *(["tile"] if tiled else []))},
            "seed": torch.full((rows,), values["seed"]),
            "warm_mean": mean,
            "warm_elites": elites,
            "last_action": executed[:, -1] if rate and executed is not None else values.get("last_action"),
        }

    asks = rate and spec.context_frames == 1
    return WalkFace(
        walk_name(goal, tiled),
        {
            **view(spec),
            goal: goal_port(spec, goal),
            **_search_ports(world),
            **({"last_action": actions(spec, (), "executed just before", default=None)} if asks else {}),
            **({"tile": integer(min(TILE, config.samples), "candidates rolled out at a time")} if tiled else {}),
        },
        _found_ports(spec, goal),
        _progress_ports(world),
        description=f"Plans {_towards(goal)}{', some candidates at a time' if tiled else ''}.",
        prepare=prepare,
    )


def _search_ports(world: _World) -> dict[str, Port]:
    spec, config = world.spec, world.planner.config
    return {
        "seed": integer(0, "of the candidates; every row's"),
        "horizon": integer(config.horizon, "actions in the plan"),
        "iterations": integer(config.iterations, "of the search, at most"),
        "samples": integer(config.samples, "candidates of the first iteration"),
        "warm_mean": actions(spec, (None,), "mean of the last plan, moved on by a step", default=None),
        "warm_elites": actions(spec, (None, None), "elites of the last plan, likewise", default=None),
    }


def _found_ports(spec: ModelSpec, goal: str) -> dict[str, Port]:
    return {
        "plan": actions(spec, (None,), "what to do"),
        "cost": Port(shape=(None,), description="what it costs"),
        "cost_history": Port(shape=(None, None), description="the best of each iteration"),
        "mean": actions(spec, (None,), "where the search ended"),
        "std": actions(spec, (None,), "and how widely it was spread"),
        "elites": actions(spec, (None, None), "the best candidates, best first"),
        "latents": latents(spec, None, "of the frames"),
        **({"goal_latent": latents(spec, 1, "of the goal")} if goal == "goal_frames" else {}),
    }


def _progress_ports(world: _World) -> dict[str, Port]:
    """What a search says after each iteration."""
    found = {"best_cost": Port(shape=(None,), description="of this iteration")}
    if world.planner.returns_best:
        found["best_actions"] = actions(world.spec, (None,), "of this iteration")
    return found


def _landscape(world: _World, goal: str) -> WalkFace:
    spec = world.spec

    def prepare(values: Values) -> Values:
        rows, points, _ = values["grid"].shape
        tile = values["tile"] or points
        world.allow(rows * points, values["repeat"], tile=rows * tile)
        if points % tile:
            what = f"tile is {tile}, and the grid has {points} actions"
            raise InvalidInputError(f"{what}; send one that divides them, or 0 for all at once", field="tile")
        world.bounded(values, "grid")
        return {**world.seen(values), **{name: values[name] for name in (goal, "grid", "repeat")}, "tile": tile}

    return WalkFace(
        landscape_name(goal),
        {
            **view(spec),
            goal: goal_port(spec, goal),
            "grid": actions(spec, (None,), "K actions"),
            "repeat": integer(1, "steps that each is held"),
            "tile": integer(0, "actions tried at a time; 0: all at once"),
        },
        {"costs": Port(shape=(None, None), description="how far from the goal each action ends")},
        description=f"Shows where single actions lead, on the way {_towards(goal)}.",
        prepare=prepare,
    )


def _towards(goal: str) -> str:
    return "to an encoded goal" if goal == "goal_latent" else "to what a picture shows"


def _warm(values: Values, horizon: int) -> tuple[Tensor | None, Tensor | None]:
    """Mean [B, H, A] and elites [B, E, H, A] of a warm start; None and None where there is none."""
    mean: Tensor | None = values["warm_mean"]
    elites: Tensor | None = values["warm_elites"]
    if mean is None and elites is not None:
        what = "warm_elites are there without warm_mean"
        raise InvalidInputError(f"{what}; send both, or the mean alone", field="warm_mean")
    if mean is None:
        return None, None
    elites = mean[:, None][:, :0] if elites is None else elites
    for name, sent in (("warm_mean", mean), ("warm_elites", elites)):
        if sent.shape[-2] != horizon:
            what = f"{name} has {sent.shape[-2]} actions; this request has horizon {horizon}"
            raise InvalidInputError(f"{what}: keep the horizon, or leave the warm start out", field=name)
    return mean, elites
