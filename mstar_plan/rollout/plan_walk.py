"""A plan request as one walk: the planner's loop is a Loop in it, around the loop over the horizon.

encode, encode_goal -> embed_goal, begin, init
    -> Loop x iterations [ propose -> Loop x horizon [ predict ] -> embed -> score -> refit ]
    -> for planners that do not return their best candidate: answer, which is rolled out and scored, too

The landscape is the same world seen without a search: a grid of actions, each held for some steps, and their energies.
"""

from __future__ import annotations

from mstar_plan.models.world_model import WorldModel
from mstar_plan.rollout.nodes import plan_components
from mstar_plan.rollout.objective import ObjectiveConfig, energy_of, make_objective
from mstar_plan.rollout.planner import Planner, PlannerConfig, make_planner
from mstar_plan.walks.graph import Graph
from mstar_plan.walks.step import Best, Collect, Loop, Node, Parallel, Scan, Sequential, Step
from mstar_plan.walks.walk import Walk

SEARCH = "search"  # name of the loop over iterations, for its end's report and for compute policies

CONTEXT = ("frames", "context_latents", "context_actions", "state")
GOALS = ("goal_frames", "goal_latent")
RESULTS = ("plan", "cost", "cost_history", "mean", "std", "elites", "latents")


def plan_graph(
    model: WorldModel, planner: PlannerConfig | Planner, objective: ObjectiveConfig, name: str = ""
) -> Graph:
    """The graph of one world model with its planner and objective.

    Walks: "encode" (frames to latents), "rollout" (predicted latents of given action sequences), "plan" (towards a goal
    image), "plan_to_latent" (towards an encoded goal), both of these "_in_tiles" (candidates in fixed tile shapes), and
    "landscape" and "landscape_to_latent" (energies of a grid of actions).

    Args:
        model: The world model.
        planner: Which planner, with its settings; or the planner itself, bound to the model's actions.
        objective: What a plan costs.
        name: The graph's name; the model's if empty.

    Raises:
        ConfigError: The planner's settings do not fit the model's actions.
    """
    made = make_planner(planner, model.spec.action) if isinstance(planner, PlannerConfig) else planner
    walks = [encode_walk(), rollout_walk(), *(landscape_walk(goal) for goal in GOALS)]
    walks += [plan_walk(goal, tiled, made) for goal in GOALS for tiled in (False, True)]
    components = plan_components(model, made, make_objective(objective), make_objective(energy_of(objective)))
    return Graph(name or model.spec.name, components, {walk.name: walk for walk in walks})


def walk_name(goal: str, tiled: bool) -> str:
    """Name of the plan walk that takes its goal from the input `goal` ("goal_frames" or "goal_latent")."""
    return "plan" + _towards(goal) + ("_in_tiles" if tiled else "")


def landscape_name(goal: str) -> str:
    """Name of the landscape walk that takes its goal from the input `goal`."""
    return "landscape" + _towards(goal)


def _towards(goal: str) -> str:
    return "_to_latent" if goal == "goal_latent" else ""


def encode_walk() -> Walk:
    """frames [B, T, H_px, W_px, 3] uint8 to latents [B, T, N, D]."""
    return Walk("encode", Node("encode", ("frames",), ("latents",)), ("frames",), ("latents",))


def rollout_walk() -> Walk:
    """Predicted latents [B, K, H, N, D] of action sequences [B, K, H, A] in their units, from what is seen now."""
    step = Sequential(
        (
            Node("encode", ("frames",), ("latents",)),
            _begin("candidates"),
            _rollout("actions", "predicted"),
        )
    )
    return Walk("rollout", step, (*CONTEXT, "actions", "candidates", "horizon"), ("predicted",))


def landscape_walk(goal: str) -> Walk:
    """Energies [B, K] of a grid of actions [B, K, A], each held for `repeat` steps, in tiles of `tile`.

    Args:
        goal: "goal_frames" ([B, 1, H_px, W_px, 3] uint8) or "goal_latent" ([B, 1, N, D]).
    """
    start = _begin("tile", horizon="repeat")
    step = Sequential((_see(goal), start, Node("hold", ("grid", "repeat"), ("candidates", "actions")), *_tiles(True)))
    return Walk(landscape_name(goal), step, (*CONTEXT, goal, "grid", "repeat", "tile"), ("costs",))


def plan_walk(goal: str, tiled: bool, planner: Planner) -> Walk:
    """One plan request.

    Args:
        goal: "goal_frames" ([B, 1, H_px, W_px, 3] uint8) or "goal_latent" ([B, 1, N, D]).
        tiled: Candidates are rolled out in tiles of `tile`, one after the other.
        planner: Where every iteration has as many candidates, rollouts are begun once for all of them.
    """
    begin_once = tiled or planner.fixed_samples
    step = Sequential(
        (
            _see(goal),
            Node("init", ("latents", "warm_mean", "warm_elites", "horizon"), ("mean", "std", "elites")),
            *((_begin("tile" if tiled else "samples"),) if begin_once else ()),
            _search(tiled, begin_once, planner),
            *(() if planner.returns_best else _answer()),
        )
    )
    inputs = (*CONTEXT, goal, "seed", "horizon", "iterations", "samples", "warm_mean", "warm_elites", "last_action")
    outputs = (*RESULTS, "goal_latent") if goal == "goal_frames" else RESULTS  # to be kept for the next plan
    return Walk(walk_name(goal, tiled), step, inputs + (("tile",) if tiled else ()), outputs)


def _see(goal: str) -> Step:
    """Encodes what is seen and, if it is an image, what is wanted: two nodes of one component, which may join."""
    encode = Node("encode", ("frames",), ("latents",))
    if goal == "goal_latent":
        return Sequential((encode, Node("embed_goal", {"latents": goal}, {"embedded": "goal"}, component="embed")))
    encode_goal = Node("encode_goal", {"frames": goal}, {"latents": "goal_latent"}, component="encode")
    embed_goal = Node("embed_goal", {"latents": "goal_latent"}, {"embedded": "goal"}, component="embed")
    return Parallel((encode, Sequential((encode_goal, embed_goal))))


def _begin(candidates: str, prefix: str = "", horizon: str = "horizon") -> Node:
    reads = {name: name for name in ("latents", "context_latents", "context_actions", "state")}
    writes = {name: f"{prefix}start_{name}" for name in ("latent", "state", "cache")}
    return Node(f"{prefix}begin", {**reads, "candidates": candidates, "horizon": horizon}, writes, component="begin")


def _search(tiled: bool, begin_once: bool, planner: Planner) -> Loop:
    """The planner's loop: it keeps its best so far, and may be ended between iterations by the clock."""
    ends_early = planner.config.tolerance > 0
    propose = {name: name for name in ("mean", "std", "elites", "seed", "iteration", "last_action")}
    refit = {name: name for name in ("mean", "std", "elites", "candidates", "actions", "costs")}
    fitted = {name: name for name in ("mean", "std", "elites", "best_cost")}
    fitted |= {"best_actions": "best_actions"} if planner.returns_best else {}
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
        best=Best("best_cost", {"best_actions": "plan", "best_cost": "cost"}) if planner.returns_best else None,
        anytime=True,
        name=SEARCH,
    )


def _answer() -> tuple[Step, ...]:
    """What the planner makes of its last distribution, rolled out as the only candidate: its cost is its own."""
    writes = {"candidates": "answer_candidates", "actions": "answer_actions", "count": "answer_count"}
    return (
        Node("answer", ("mean", "std", "elites", "last_action"), writes),
        _begin("answer_count", "answer_"),
        *_evaluate("answer_actions", "answer_candidates", "answer_costs", "answer_"),
        Node("conclude", {"actions": "answer_actions", "costs": "answer_costs"}, ("plan", "cost")),
    )


def _evaluate(actions: str, candidates: str, costs: str, prefix: str = "") -> tuple[Step, ...]:
    """Rolls candidates out and scores them."""
    predicted, embedded = f"{prefix}predicted", f"{prefix}embedded"
    scored = {"embedded": embedded, "goal": "goal", "candidates": candidates}
    return (
        _rollout(actions, predicted, prefix),
        Node(f"{prefix}embed", {"latents": predicted}, {"embedded": embedded}, component="embed"),
        Node(f"{prefix}score", scored, {"costs": costs}, component="score"),
    )


def _explore(actions: str, candidates: str, costs: str) -> tuple[Step, ...]:
    """Rolls held actions out and measures how far their last frames are from the goal; the others are not kept."""
    scored = {"embedded": "embedded", "goal": "goal", "candidates": candidates}
    return (
        _rollout(actions, times="repeat"),
        Node("embed", {"latents": "latent"}, ("embedded",)),
        Node("energy", scored, {"costs": costs}),
    )


def _tiles(landscape: bool = False) -> tuple[Step, ...]:
    """Rolls candidates out and scores them tile by tile: every call has the same shape, whatever K is."""
    cut = Node("cut_tiles", ("candidates", "actions", "tile"), ("tiled_candidates", "tiled_actions", "tiles"))
    evaluate = _explore if landscape else _evaluate
    each = Loop(
        Sequential(evaluate("tile_actions", "tile_candidates", "tile_costs")),
        times="tiles",
        scan={"tiled_candidates": "tile_candidates", "tiled_actions": "tile_actions"},
        collect={"tile_costs": Collect("costs", dim=1, concat=True)},
        name="tiles",
    )
    return cut, each


def _rollout(actions: str, predicted: str = "", prefix: str = "", times: str = "horizon") -> Loop:
    """Predicts through the horizon; step h sees its slice of the actions [B, K, H, A]; keeps all frames, if named."""
    ports = {"latent": f"{prefix}latent", "state": f"{prefix}state_now", "cache": f"{prefix}cache"}
    starts = (f"{prefix}start_{name}" for name in ports)
    return Loop(
        Node(f"{prefix}predict", {**ports, "action": f"{prefix}action"}, ports, component="predict"),
        times=times,
        carry=dict(zip(ports.values(), starts, strict=True)),
        collect={ports["latent"]: Collect(predicted, dim=2)} if predicted else {},
        scan={actions: Scan(f"{prefix}action", dim=2)},
        name=f"{prefix}rollout",
    )
