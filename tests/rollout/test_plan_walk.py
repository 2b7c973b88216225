"""The plan walk has the structure that it is known for, and its loops are named."""

import pytest
from planning_worlds import Glider

from mstar_plan.models.toy import ToyWorld
from mstar_plan.rollout.cem import CEMConfig
from mstar_plan.rollout.icem import ICEMConfig
from mstar_plan.rollout.objective import ObjectiveConfig
from mstar_plan.rollout.plan_walk import SEARCH, landscape_name, plan_graph, walk_name
from mstar_plan.rollout.planner import Planner, PlannerConfig, make_planner
from mstar_plan.rollout.vjepa2_cem import VJEPA2CEMConfig
from mstar_plan.walks.step import Loop, every_step, nodes_of


def loops(step) -> dict[str, Loop]:
    return {s.name: s for s in every_step(step) if isinstance(s, Loop)}


def graph(planner: PlannerConfig | Planner | None = None):
    return plan_graph(ToyWorld(), planner or CEMConfig(), ObjectiveConfig())


def test_walks_and_names() -> None:
    made = graph()
    assert made.name == "toy"
    assert set(made.walks) == {
        "encode", "rollout", "plan", "plan_in_tiles", "plan_to_latent", "plan_to_latent_in_tiles", "landscape",
        "landscape_to_latent",
    }  # fmt: skip
    assert walk_name("goal_latent", True) == "plan_to_latent_in_tiles"
    assert landscape_name("goal_latent") == "landscape_to_latent"
    assert plan_graph(Glider(), CEMConfig(), ObjectiveConfig(), name="mine").name == "mine"


@pytest.mark.parametrize("name", ["plan", "plan_to_latent", "plan_in_tiles", "plan_to_latent_in_tiles"])
def test_the_search_is_an_anytime_loop_around_the_rollout(name: str) -> None:
    found = loops(graph().walk(name).step)
    search = found[SEARCH]
    assert search.anytime
    assert search.best is not None
    assert loops(search.body)["rollout"].body.component == "predict"
    assert [n.name for n in nodes_of(search.body) if n.name in ("propose", "score", "refit")] == [
        "propose", "score", "refit",
    ]  # fmt: skip


def test_a_rollout_is_begun_once_unless_the_number_of_candidates_changes() -> None:
    def inside(planner: PlannerConfig, walk: str) -> bool:
        search = loops(graph(planner).walk(walk).step)[SEARCH]
        return "begin" in [node.name for node in nodes_of(search)]

    assert not inside(CEMConfig(), "plan")
    assert inside(ICEMConfig(), "plan")
    assert not inside(ICEMConfig(decay=1.0), "plan")
    assert not inside(ICEMConfig(), "plan_in_tiles")


def test_goal_and_observation_may_be_encoded_together() -> None:
    encoders = [n.name for n in graph().walk("plan").nodes if n.component == "encode"]
    assert encoders == ["encode", "encode_goal"]


def test_a_planner_that_does_not_return_its_best_has_its_answer_scored() -> None:
    for name in ("plan", "plan_to_latent_in_tiles"):
        walk = graph(VJEPA2CEMConfig()).walk(name)
        assert loops(walk.step)[SEARCH].best is None
        assert [n.component for n in walk.nodes][-6:] == ["answer", "begin", "predict", "embed", "score", "conclude"]
        assert "answer" not in [n.name for n in graph().walk(name).nodes]


def test_the_landscape_keeps_the_last_frame_alone() -> None:
    found = loops(graph().walk("landscape").step)
    assert not found["rollout"].collects
    assert found["tiles"].times == "tiles"


def test_a_planner_may_be_given_ready_made() -> None:
    made = make_planner(CEMConfig(tolerance=0.1))
    assert graph(made).components["propose"].planner is made
    assert loops(graph(made).walk("plan").step)[SEARCH].until == "converged"
