"""One request over a policy and a world model: it chooses what is truly best, and nothing else changes the answer."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch
from planning_worlds import Slow
from toy_policies import NOWHERE, dart_thrower, flow_policy, pictures, throw, true_costs

from mstar_plan.errors import ComponentError, ConfigError, WalkError
from mstar_plan.models.flow_policy.walk import policy_graph
from mstar_plan.models.toy import ToyWorld
from mstar_plan.rollout.cem import CEMConfig
from mstar_plan.rollout.mppi import MPPIConfig
from mstar_plan.rollout.objective import ObjectiveConfig
from mstar_plan.rollout.plan_walk import SEARCH
from mstar_plan.rollout.rerank_walk import Proposer, horizon_of, rerank_graph, rerank_walk
from mstar_plan.rollout.vjepa2_cem import VJEPA2CEMConfig
from mstar_plan.runtime.placement import Group, Placement, PlacementConfig
from mstar_plan.runtime.runtime import Runtime
from mstar_plan.walks.draw import draw_text

START, GOAL = (-0.4, 0.2), (0.3, -0.3)
PLANNER = CEMConfig(samples=32, iterations=3, horizon=6, elites=6, carry=3)
DARTS = {**NOWHERE, **pictures(START, GOAL), "seed": torch.tensor([7]), "proposals": 16, "horizon": 6}
SEARCHED = {"iterations": 3, "samples": 32}


def graph_of(proposer=None, planner=PLANNER, model=None):
    return rerank_graph("both", proposer or dart_thrower(), model or ToyWorld(), planner, ObjectiveConfig())


def run(graph, walk, **changes):
    values = {**DARTS, **(SEARCHED if walk == "refine" else {}), **changes}
    with Runtime(graph) as runtime:
        return runtime.submit(walk, values).result(20)


def test_the_truly_best_proposal_is_chosen():
    out = run(graph_of(), "rerank").outputs
    thrown = throw(torch.tensor([7]), 16)[0].clamp(-1, 1)
    costs = true_costs(START, GOAL, thrown)
    torch.testing.assert_close(
        out["proposal_costs"][0], costs, atol=2e-3, rtol=0
    )  # the picture is read to a pixel's bit
    assert out["choice"].item() == costs.argmin()
    assert torch.equal(out["actions"][0], thrown[costs.argmin()])
    assert torch.equal(out["proposed"][0], thrown)
    assert out["cost"] == out["proposal_costs"].min()


def test_more_proposals_are_never_worse():
    graph = graph_of()
    costs = [run(graph, "rerank", proposals=count).outputs["cost"].item() for count in (1, 2, 4, 8, 32)]
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] < 0.7 * costs[0]


def test_one_proposal_is_the_policys_own_answer():
    policy = flow_policy()
    graph = graph_of(Proposer(policy_graph(policy), policy.action, 6))
    flow = {"steps": 4}
    alone = {**pictures(START, GOAL), "seed": torch.tensor([7]), **flow}
    with Runtime(graph) as runtime:
        one = runtime.submit("rerank", {**DARTS, **flow, "proposals": 1}).result(20).outputs
        act = runtime.submit("policy.act", alone).result(20).outputs
    with Runtime(policy_graph(policy)) as runtime:
        by_itself = runtime.submit("act", alone).result(20).outputs
    assert torch.equal(one["actions"], act["actions"])
    assert torch.equal(one["actions"], by_itself["actions"])


@pytest.mark.parametrize("walk", ["rerank", "refine"])
@pytest.mark.parametrize("deterministic", [False, True])
def test_the_same_seed_gives_the_same_answer_whoever_shares_the_batch(walk, deterministic):
    policy = flow_policy()
    graph = graph_of(Proposer(policy_graph(policy), policy.action, 6))
    more = SEARCHED if walk == "refine" else {}
    requests = [
        {**DARTS, **more, **pictures((-0.1 * n, 0.1), GOAL), "seed": torch.tensor([n]), "proposals": 8, "steps": 4}
        for n in range(6)
    ]
    answer = "plan" if walk == "refine" else "actions"
    with Runtime(graph) as runtime, ThreadPoolExecutor(6) as robots:

        def ask(values):
            return runtime.submit(walk, values, deterministic=deterministic).result(20)

        alone = [ask(values) for values in requests]
        together = list(robots.map(ask, requests))
    if not deterministic:
        assert max(result.timing.largest_batch for result in together) > 1
    for one, shared in zip(alone, together, strict=True):
        if deterministic:
            assert torch.equal(one.outputs[answer], shared.outputs[answer])
        torch.testing.assert_close(one.outputs[answer], shared.outputs[answer], atol=1e-5, rtol=0)


def test_rows_of_one_request_are_told_apart():
    rows = [pictures(START, GOAL), pictures((0.5, 0.5), (-0.2, 0.1))]
    graph = graph_of()
    both = {name: torch.cat([row[name] for row in rows]) for name in rows[0]}
    out = run(graph, "rerank", **both, seed=torch.tensor([7, 9])).outputs
    for n, (row, seed) in enumerate(zip(rows, (7, 9), strict=True)):
        alone = run(graph, "rerank", **row, seed=torch.tensor([seed])).outputs
        assert torch.equal(out["actions"][n : n + 1], alone["actions"])


@pytest.mark.parametrize(
    "planner", [PLANNER, MPPIConfig(samples=32), VJEPA2CEMConfig(samples=32)], ids=["cem", "mppi", "vjepa2_cem"]
)
def test_refining_is_never_worse_than_the_best_proposal(planner):
    graph, gains = graph_of(planner=planner), []
    for seed in range(4):
        out = run(graph, "refine", seed=torch.tensor([seed])).outputs
        assert out["cost"] <= out["proposal_cost"]
        assert out["plan"].abs().max() <= 1
        costs = true_costs(START, GOAL, out["plan"])
        torch.testing.assert_close(costs, out["cost"], atol=2e-3, rtol=0)
        gains.append((out["proposal_cost"] - out["cost"]).item())
    if graph.components["world.refit"].planner.returns_best:  # others answer with a mean, which may not be better
        assert max(gains) > 0.01


def test_good_proposals_spare_a_search_its_way():
    """From the same number of candidates, a search that starts from proposals ends nearer than one that does not."""
    graph = graph_of()
    with Runtime(graph) as runtime:
        plain = {**DARTS, **SEARCHED, "iterations": 1, "warm_mean": None, "warm_elites": None}
        refined = {**DARTS, "iterations": 1, "samples": 16}
        cost = {"world.plan": 0.0, "refine": 0.0}
        for seed in range(8):
            for walk, values in (("world.plan", plain), ("refine", refined)):
                chosen = {name: values[name] for name in graph.walk(walk).inputs}
                out = runtime.submit(walk, {**chosen, "seed": torch.tensor([seed])}).result(20).outputs
                cost[walk] += out["cost"].item()
    assert cost["refine"] < cost["world.plan"]


def test_the_search_reports_how_it_ended():
    result = run(graph_of(), "refine")
    assert result.loop_ends[SEARCH].iterations == 3
    assert result.outputs["cost_history"].shape == (1, 3)


def test_a_bad_proposal_is_passed_over_and_none_at_all_is_an_error():
    best = run(graph_of(), "rerank").outputs["choice"].item()
    out = run(graph_of(dart_thrower(bad=(best,))), "rerank").outputs
    assert out["choice"].item() != best
    assert out["actions"].isfinite().all()
    hopeless = graph_of(dart_thrower(bad=tuple(range(16))))
    with pytest.raises(ComponentError, match="none of 16 proposals"):
        run(hopeless, "rerank")
    rescued = run(hopeless, "refine").outputs  # the search finds a plan by itself
    assert rescued["plan"].isfinite().all()
    assert rescued["cost"].isfinite().all()


def test_limits_of_the_world_model_hold():
    world = Slow()
    out = run(graph_of(dart_thrower(world.spec.action), model=world), "rerank", last_action=torch.tensor([[0.0, 0.0]]))
    actions = torch.cat([torch.zeros(1, 2), out.outputs["actions"][0]])
    assert (actions.diff(dim=0).abs() <= torch.tensor([0.2, 0.5]) + 1e-5).all()


def test_a_chunk_may_be_longer_than_what_is_judged():
    proposer = dart_thrower(chunk=12)
    out = run(graph_of(proposer), "rerank", horizon=3).outputs
    assert out["actions"].shape == (1, 12, 2)
    thrown = throw(torch.tensor([7]), 16, chunk=12)[0].clamp(-1, 1)
    assert out["choice"].item() == true_costs(START, GOAL, thrown[:, :3]).argmin()
    assert horizon_of(proposer, replace(ToyWorld().spec, max_horizon=5)) == 5
    assert horizon_of(proposer, ToyWorld().spec) == 12


def test_an_old_chunk_is_gone_on_with_where_it_is_better():
    graph = graph_of()
    best = (torch.tensor(GOAL) - torch.tensor(START)).sign()
    good, bad = ((best * sign).expand(1, 1, 6, -1) for sign in (1, -1))
    kept, passed = (run(graph, "rerank", warm=warm).outputs for warm in (good, bad))
    assert kept["choice"].item() == 16
    torch.testing.assert_close(kept["actions"], good[:, 0])
    assert kept["proposal_costs"].shape == (1, 17)
    alone = run(graph, "rerank").outputs
    assert torch.equal(passed["actions"], alone["actions"])
    assert torch.equal(passed["proposal_costs"][:, :16], alone["proposal_costs"])
    refined = run(graph, "refine", warm=torch.cat([good, bad], 1)).outputs
    assert refined["cost"] <= kept["cost"] + 1e-6


def test_what_is_held_is_answered_and_judged():
    old = torch.tensor([-1.0, 1.0]).expand(1, 1, 3, -1)
    out = run(graph_of(), "rerank", warm=old, held=3).outputs
    torch.testing.assert_close(out["actions"][:, :3], old[:, 0])
    costs = true_costs(START, GOAL, out["proposed"][0])
    torch.testing.assert_close(out["proposal_costs"][0], costs, atol=2e-3, rtol=0)


def test_policy_and_world_may_stand_on_workers_of_their_own():
    graph = graph_of()
    config = PlacementConfig({"left": Group(), "right": Group()}, {"rerank/policy.*": "left", "*": "right"})
    placement = Placement.from_config(config, graph)
    with Runtime(graph, placement=placement) as runtime:
        out = runtime.submit("rerank", DARTS).result(20).outputs
    assert torch.equal(out["actions"], run(graph, "rerank").outputs["actions"])


def test_actions_of_another_robot_are_refused():
    action = ToyWorld().spec.action
    for other in (replace(action, dt_s=0.2), replace(action, names=("a", "b")), replace(action, units=("m", "m"))):
        with pytest.raises(ConfigError, match="put a walk between them"):
            graph_of(dart_thrower(other))


def test_a_policy_is_told_what_its_walk_lacks():
    proposer = replace(dart_thrower(), actions="throws")
    with pytest.raises(WalkError, match="throws"):
        graph_of(proposer)


def test_inputs_of_a_policy_can_have_other_names():
    proposer = replace(dart_thrower(), rename={"seed": "policy_seed"})
    walk = rerank_walk(proposer)
    assert "policy_seed" in walk.inputs
    assert "seed" not in walk.inputs
    assert "policy.throw(seed=policy_seed" in draw_text(walk)


def test_nothing_here_is_random():
    first, second = run(graph_of(), "rerank").outputs, run(graph_of(), "rerank").outputs
    assert torch.equal(first["actions"], second["actions"])
