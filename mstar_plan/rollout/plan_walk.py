"""A plan request as one walk: the planner's loop is a Loop in it, around the loop over the horizon.

encode, encode_goal -> embed_goal, begin, init
    -> Loop x iterations [ propose -> Loop x horizon [ predict ] -> embed -> score -> refit ]
"""

from __future__ import annotations

from mstar_plan.models.world_model import WorldModel
from mstar_plan.rollout.nodes import plan_components
from mstar_plan.rollout.objective import ObjectiveConfig, make_objective
from mstar_plan.rollout.planner import PlannerConfig, make_planner
from mstar_plan.walks.graph import Graph
from mstar_plan.walks.step import Best, Collect, Loop, Node, Parallel, Scan, Sequential, Step
from mstar_plan.walks.walk import Walk

SEARCH = "search"  # name of the loop over iterations, for its end's report and for compute policies

CONTEXT = ("frames", "context_latents", "context_actions", "state")
RESULTS = ("plan", "cost", "cost_history", "mean", "std", "elites", "latents")


def plan_graph(model: WorldModel, planner: PlannerConfig, objective: ObjectiveConfig, name: str = "") -> Graph:
    """The graph of one world model with its planner and objective.

    Walks: "encode" (frames to latents), "rollout" (predicted latents of given action sequences), "plan" (towards a goal
    image), "plan_to_latent" (towards an encoded goal), and both of these "_in_tiles" (candidates in fixed tile shapes).

    Args:
        model: The world model.
        planner: Which planner, with its settings.
        objective: What a plan costs.
        name: The graph's name; the model's if empty.
    """
    made = make_planner(planner)
    walks = [encode_walk(), rollout_walk()]
    early = planner.tolerance > 0
    walks += [plan_walk(g, t, made.fixed_samples, early) for g in ("goal_frames", "goal_latent") for t in (False, True)]
    components = plan_components(model, made, make_objective(objective))
    return Graph(name or model.spec.name, components, {walk.name: walk for walk in walks})


def walk_name(goal: str, tiled: bool) -> str:
    """Name of the plan walk that takes its goal from the input `goal` ("goal_frames" or "goal_latent")."""
    return ("plan_to_latent" if goal == "goal_latent" else "plan") + ("_in_tiles" if tiled else "")


def encode_walk() -> Walk:
    """frames [B, T, H_px, W_px, 3] uint8 to latents [B, T, N, D]."""
    return Walk("encode", Node("encode", ("frames",), ("latents",)), ("frames",), ("latents",))


def rollout_walk() -> Walk:
    """Predicted latents [B, K, H, N, D] of action sequences [B, K, H, A] in their units, from what is seen now."""
    step = Sequential(
        (
            Node("encode", ("frames",), ("latents",)),
            _begin("candidates"),
            _rollout("actions"),
        )
    )
    return Walk("rollout", step, (*CONTEXT, "actions", "candidates", "horizon"), ("predicted",))


def plan_walk(goal: str, tiled: bool, fixed_samples: bool, ends_early: bool = True) -> Walk:
    """One plan request.

    Args:
        goal: "goal_frames" ([B, 1, H_px, W_px, 3] uint8) or "goal_latent" ([B, 1, N, D]).
        tiled: Candidates are rolled out in tiles of `tile`, one after the other.
        fixed_samples: Every iteration has as many candidates; then rollouts are begun once for all of them.
        ends_early: The search ends when the candidates agree.
    """
    begin_once = tiled or fixed_samples
    step = Sequential(
        (
            _see(goal),
            Node("init", ("latents", "warm_mean", "warm_elites", "horizon"), ("mean", "std", "elites")),
            *((_begin("tile" if tiled else "samples"),) if begin_once else ()),
            _search(tiled, begin_once, ends_early),
        )
    )
    inputs = (*CONTEXT, goal, "seed", "horizon", "iterations", "samples", "warm_mean", "warm_elites", "last_action")
    return Walk(walk_name(goal, tiled), step, inputs + (("tile",) if tiled else ()), RESULTS)


def _see(goal: str) -> Step:
    """Encodes what is seen and, if it is an image, what is wanted: two nodes of one component, which may join."""
    encode = Node("encode", ("frames",), ("latents",))
    if goal == "goal_latent":
        return Sequential((encode, Node("embed_goal", {"latents": goal}, {"embedded": "goal"}, component="embed")))
    encode_goal = Node("encode_goal", {"frames": goal}, {"latents": "goal_latent"}, component="encode")
    embed_goal = Node("embed_goal", {"latents": "goal_latent"}, {"embedded": "goal"}, component="embed")
    return Parallel((encode, Sequential((encode_goal, embed_goal))))


def _begin(candidates: str) -> Node:
    reads = {name: name for name in ("latents", "context_latents", "context_actions", "state", "horizon")}
    writes = {"latent": "start_latent", "state": "start_state", "cache": "start_cache"}
    return Node("begin", {**reads, "candidates": candidates}, writes)


def _search(tiled: bool, begin_once: bool, ends_early: bool) -> Loop:
    """The planner's loop: it keeps its best so far, and may be ended between iterations by the clock."""
    propose = {name: name for name in ("mean", "std", "elites", "seed", "iteration", "last_action")}
    refit = {name: name for name in ("mean", "std", "elites", "candidates", "actions", "costs")}
    fitted = {name: name for name in ("mean", "std", "elites", "best_actions", "best_cost")}
    fitted |= {"converged": "converged"} if ends_early else {}
    body = Sequential(
        (
            Node("propose", {**propose, "samples": "samples_now"}, ("candidates", "actions")),
            *(() if begin_once else (_begin("samples_now"),)),
            *(_tiles() if tiled else _evaluate("actions", "candidates", "costs")),
            Node("refit", {**refit, "samples": "samples_now"}, {**fitted, "samples": "samples_now"}),
        )
    )
    return Loop(
        body,
        times="iterations",
        carry={"mean": "mean", "std": "std", "elites": "elites", "samples_now": "samples"},
        collect={"best_cost": "cost_history"},
        index="iteration",
        until="converged" if ends_early else None,
        best=Best("best_cost", {"best_actions": "plan", "best_cost": "cost"}),
        anytime=True,
        name=SEARCH,
    )


def _evaluate(actions: str, candidates: str, costs: str) -> tuple[Step, ...]:
    """Rolls candidates out and scores them."""
    return (
        _rollout(actions),
        Node("embed", {"latents": "predicted"}, ("embedded",)),
        Node("score", {"embedded": "embedded", "goal": "goal", "candidates": candidates}, {"costs": costs}),
    )


def _tiles() -> tuple[Step, ...]:
    """Rolls candidates out and scores them tile by tile: every call has the same shape, whatever K is."""
    cut = Node("cut_tiles", ("candidates", "actions", "tile"), ("tiled_candidates", "tiled_actions", "tiles"))
    each = Loop(
        Sequential(_evaluate("tile_actions", "tile_candidates", "tile_costs")),
        times="tiles",
        scan={"tiled_candidates": "tile_candidates", "tiled_actions": "tile_actions"},
        collect={"tile_costs": Collect("costs", dim=1, concat=True)},
        name="tiles",
    )
    return cut, each


def _rollout(actions: str) -> Loop:
    """Predicts through the horizon; step h sees its slice of the actions [B, K, H, A]."""
    ports = {"latent": "latent", "state": "state_now", "cache": "cache"}
    return Loop(
        Node("predict", {**ports, "action": "action"}, ports),
        times="horizon",
        carry={"latent": "start_latent", "state_now": "start_state", "cache": "start_cache"},
        collect={"latent": Collect("predicted", dim=2)},
        scan={actions: Scan("action", dim=2)},
        name="rollout",
    )
