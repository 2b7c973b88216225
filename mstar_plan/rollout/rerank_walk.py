"""One request over two models: a policy proposes, a world model rolls out, an objective chooses; or a search goes on.

rerank:  Parallel [ policy's walk -> proposed | encode, encode_goal -> embed_goal ]
         -> limit -> begin -> Loop x horizon [ predict ] -> embed -> score -> choose
refine:  the same, then adopt -> the planner's Loop -> keep

Nothing is written anew: the policy's walk is put inside as it is, the world model's parts are those of its walks
"rollout" and "plan", and the search is the planner's walk with another start. Any policy can propose whose walk takes a
number of proposals and gives actions [B, K, S, A] in the world model's units; where it gives something else, a walk of
its own brings it there.

Shapes: B requests, K proposals, S actions of a chunk, H actions that are judged, A action.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mstar_plan.errors import ConfigError
from mstar_plan.models.world_model import ModelSpec, WorldModel
from mstar_plan.rollout.constraints import SearchSpace
from mstar_plan.rollout.objective import ObjectiveConfig
from mstar_plan.rollout.plan_walk import CONTEXT, RESULTS, plan_graph, plan_walk, rollout_walk
from mstar_plan.rollout.planner import Planner, PlannerConfig, make_planner
from mstar_plan.rollout.rerank_nodes import Adopt, Choose, Keep, Limit
from mstar_plan.types import ActionSpec
from mstar_plan.walks.component import Component
from mstar_plan.walks.graph import Graph, prefixed
from mstar_plan.walks.rewrite import Renaming, rewrite
from mstar_plan.walks.step import Node, Parallel, Sequential, Step, nodes_of
from mstar_plan.walks.walk import Walk

POLICY, WORLD, BETWEEN = "policy", "world", "between"  # prefixes of the parts
GOAL = "goal_frames"
JUDGED = ("proposal_costs", "choice", "proposed")
SPREAD = 0.3  # smallest spread that a refining search starts with, of the half range


@dataclass(frozen=True, eq=False)
class Proposer:
    """A policy that proposes.

    Attributes:
        graph: Its graph.
        action: What its actions are; they must be the world model's.
        chunk: S, actions of one proposal.
        walk: Its walk that gives K proposals.
        proposals: The walk's input that says how many: a static.
        actions: The walk's output, [B, K, S, A].
        rename: {input of the walk: name in the combined walks}; inputs of one name are one input. Other names stay.
    """

    graph: Graph
    action: ActionSpec
    chunk: int
    walk: str = "propose"
    proposals: str = "proposals"
    actions: str = "actions"
    rename: Mapping[str, str] = field(default_factory=dict)

    @property
    def inputs(self) -> tuple[str, ...]:
        """What its walk reads, as the combined walks call it."""
        return tuple(self.names[name] for name in self.graph.walk(self.walk).inputs)

    @property
    def names(self) -> dict[str, str]:
        """{input of the walk: name in the combined walks}."""
        names = {name: self.rename.get(name, name) for name in self.graph.walk(self.walk).inputs}
        return {**names, self.proposals: "proposals"}


def rerank_graph(
    name: str,
    proposer: Proposer,
    model: WorldModel,
    planner: PlannerConfig | Planner,
    objective: ObjectiveConfig,
    *,
    spread: float = SPREAD,
) -> Graph:
    """A policy and a world model as one graph: their own walks under `policy.` and `world.`, "rerank" and "refine".

    Args:
        name: Of the whole.
        proposer: The policy.
        model: The world model.
        planner: Whose search refines.
        objective: What a chunk of actions costs.
        spread: Smallest spread that a refining search starts with, as a fraction of the half range.

    Raises:
        ConfigError: The policy's actions are not the world model's.
        WalkError: The policy's walk has other inputs or outputs than said.
    """
    check_actions(proposer, model.spec)
    made = make_planner(planner, model.spec.action) if isinstance(planner, PlannerConfig) else planner
    between: dict[str, Component] = {
        "limit": Limit(SearchSpace(model.spec.action)),
        "choose": Choose(),
        "choose_start": Choose(last=False),
        "adopt": Adopt(made, spread),
        "keep": Keep(),
    }
    parts = {
        POLICY: proposer.graph,
        WORLD: plan_graph(model, made, objective, WORLD),
        BETWEEN: Graph(BETWEEN, between, {}),
    }
    walks = (rerank_walk(proposer), refine_walk(proposer, made))
    return Graph.compose(name, parts, {walk.name: walk for walk in walks})


def rerank_walk(proposer: Proposer) -> Walk:
    """The best of K proposals.

    Gives "actions" [B, S, A], their "cost" [B], the "choice" [B] of the "proposed" [B, K + E, S, A], and all
    "proposal_costs" [B, K + E]; the last E are the old chunks "warm".
    """
    choose = _choose("choose", {"best": "actions", "cost": "cost"})
    step = Sequential((_see_and_propose(proposer), *_judge(), choose))
    return Walk("rerank", step, _inputs(proposer), ("actions", "cost", *JUDGED))


def refine_walk(proposer: Proposer, planner: Planner) -> Walk:
    """A search that starts from K proposals; its "plan" [B, H, A] costs no more than the best of them.

    Gives what a plan walk gives, and what "rerank" gives of the proposals; "cost" is the plan's, "proposal_cost" [B]
    the best proposal's.
    """
    search = plan_walk(GOAL, False, planner)
    found = {"plan": "found", "cost": "found_cost"}
    names = Renaming(wire=lambda wire: found.get(wire, wire), component=_of_world)
    # The plan walk is: see, init, and the search with what ends it. What is seen, and where it starts, is ours.
    _, init, *rest = _sequence(search)
    assert isinstance(init, Node)
    assert init.name == "init"
    step = Sequential(
        (
            _see_and_propose(proposer),
            *_judge(),
            _choose("choose_start", {"best": "best", "cost": "proposal_cost"}),
            Node(
                "adopt",
                {"candidates": "judged_candidates", "costs": "proposal_costs"},
                Adopt.outputs,
                f"{BETWEEN}.adopt",
            ),
            *(rewrite(each, names) for each in rest),
            Node(
                "keep",
                {"found": "found", "found_cost": "found_cost", "best": "best", "best_cost": "proposal_cost"},
                ("plan", "cost"),
                f"{BETWEEN}.keep",
            ),
        )
    )
    inputs = dict.fromkeys((*_inputs(proposer), "seed", "iterations", "samples"))
    return Walk("refine", step, tuple(inputs), (*RESULTS, "goal_latent", "proposal_cost", *JUDGED))


def check_actions(proposer: Proposer, spec: ModelSpec) -> None:
    """Refuses a policy whose actions are not the world model's.

    Raises:
        ConfigError: Sizes, names, units or times differ; bounds may, since what is proposed is limited.
    """
    ours, theirs = proposer.action, spec.action
    for what in ("size", "names", "units", "dt_s"):
        if getattr(ours, what) != getattr(theirs, what):
            told = f"{what} {getattr(ours, what)} of the policy's actions, {getattr(theirs, what)} of the world model's"
            raise ConfigError(f"{told}; put a walk between them that converts them", field="action")


def horizon_of(proposer: Proposer, spec: ModelSpec, wanted: int | None = None) -> int:
    """How many of a chunk's actions are judged: all, or as many as the world model can look ahead; or as wanted."""
    return min(proposer.chunk, spec.max_horizon, wanted or proposer.chunk)


def _inputs(proposer: Proposer) -> tuple[str, ...]:
    return tuple(
        dict.fromkeys((*CONTEXT, GOAL, *proposer.inputs, "proposals", "horizon", "last_action", "warm", "held"))
    )


def _of_world(component: str) -> str:
    return f"{WORLD}.{component}"


def _sequence(walk: Walk) -> tuple[Step, ...]:
    assert isinstance(walk.step, Sequential)
    return walk.step.steps


def _see_and_propose(proposer: Proposer) -> Step:
    """Both models look at the same pictures, side by side."""
    policy = prefixed(proposer.graph.walk(proposer.walk), POLICY)
    propose = policy.inline(POLICY, {**proposer.names, proposer.actions: "raw"})
    encode = Node("encode", ("frames",), ("latents",), _of_world("encode"))
    encode_goal = Node("encode_goal", {"frames": GOAL}, {"latents": "goal_latent"}, _of_world("encode"))
    embed_goal = Node("embed_goal", {"latents": "goal_latent"}, {"embedded": "goal"}, _of_world("embed"))
    return Parallel((propose, encode, Sequential((encode_goal, embed_goal))))


def _choose(component: str, writes: Mapping[str, str]) -> Node:
    reads = {"actions": "proposed", "costs": "proposal_costs"}
    return Node("choose", reads, {**writes, "choice": "choice"}, f"{BETWEEN}.{component}")


def _judge() -> tuple[Step, ...]:
    """Proposals are limited, rolled out and scored."""
    own = {"candidates": "count", "actions": "judged", "horizon": "horizon"}
    shared = {name: name for name in ("latents", "context_latents", "context_actions", "state")}
    names = Renaming(
        wire=lambda wire: {**shared, **own}.get(wire, f"judge.{wire}"),
        node=lambda node: f"judge.{node}",
        component=_of_world,
    )
    encode, *roll_out = _sequence(rollout_walk())  # what is seen now is encoded already
    assert [node.name for node in nodes_of(encode)] == ["encode"]
    limited = {"actions": "proposed", "judged": "judged", "candidates": "judged_candidates", "count": "count"}
    limit = Node(
        "limit",
        {"proposed": "raw", **{name: name for name in Limit.inputs[1:]}},
        limited,
        f"{BETWEEN}.limit",
    )
    scored = {"embedded": "judge.embedded", "goal": "goal", "candidates": "judged_candidates"}
    return (
        limit,
        *(rewrite(step, names) for step in roll_out),
        Node("judge.embed", {"latents": "judge.predicted"}, {"embedded": "judge.embedded"}, _of_world("embed")),
        Node("judge.score", scored, {"costs": "proposal_costs"}, _of_world("score")),
    )
