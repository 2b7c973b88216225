"""The components between policy and world model, each against what it is told to do."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mstar_plan.errors import ComponentError, InvalidInputError
from mstar_plan.rollout.cem import CEM, CEMConfig
from mstar_plan.rollout.constraints import SearchSpace, worst_violation
from mstar_plan.rollout.planner import PlannerState
from mstar_plan.rollout.rerank_nodes import Adopt, Choose, Keep, Limit
from mstar_plan.types import ActionSpec
from mstar_plan.walks.batch import Batch

SPEC = ActionSpec(low=[-0.5, -1.0], high=[1.5, 1.0], dt_s=0.1)
SLOW = ActionSpec(low=[-0.5, -1.0], high=[1.5, 1.0], dt_s=0.1, max_delta=[0.2, 0.2])
NAN = float("nan")


def batch(**values):
    rows = next(value for value in values.values() if isinstance(value, torch.Tensor)).shape[0]
    return Batch(values, rows)


def limited(spec, proposed, horizon=4, last=None, proposals=None, warm=None, held=0):
    count = proposed.shape[1] if proposals is None else proposals
    limits = Limit(SearchSpace(spec))
    return limits(
        batch(proposed=proposed, proposals=count, horizon=horizon, last_action=last, warm=warm, held=held)
    )  # fmt: skip


def chunks(rows=2, count=3, length=4, seed=0):
    return torch.randn(rows, count, length, 2, generator=torch.Generator().manual_seed(seed)) * 2


def test_what_is_inside_stays_as_it_is():
    proposed = torch.rand(1, 3, 4, 2) * 0.4
    out = limited(SPEC, proposed)
    torch.testing.assert_close(out["actions"], proposed)
    torch.testing.assert_close(out["candidates"], (proposed - torch.tensor([0.5, 0.0])) / torch.tensor([1.0, 1.0]))


def test_bounds_and_rate_are_kept():
    last = torch.tensor([[0.1, 0.1], [1.5, -1.0]])
    out = limited(SLOW, chunks(), last=last)
    for row in range(2):
        for chunk in out["actions"][row].numpy():
            assert worst_violation(chunk, SLOW, last[row].numpy()) == ""
    torch.testing.assert_close(SearchSpace(SLOW).to_units(out["candidates"]), out["judged"])


def test_only_the_first_actions_are_judged():
    out = limited(SPEC, chunks(length=6), horizon=2)
    assert out["actions"].shape == (2, 3, 6, 2)
    assert out["judged"].shape == out["candidates"].shape == (2, 3, 2, 2)
    assert torch.equal(out["judged"], out["actions"][:, :, :2])


def test_old_chunks_are_candidates_after_the_others():
    proposed, warm = torch.rand(2, 3, 4, 2) * 0.4, torch.rand(2, 2, 3, 2) * 0.4
    out = limited(SPEC, proposed, warm=warm)
    assert out["count"] == 5
    assert out["actions"].shape == (2, 5, 4, 2)
    torch.testing.assert_close(out["actions"][:, :3], proposed)
    torch.testing.assert_close(out["actions"][:, 3:, :3], warm)
    torch.testing.assert_close(out["actions"][:, 3:, 3], torch.tensor([0.5, 0.0]).expand(2, 2, -1))  # then it is still
    assert limited(SPEC, proposed)["count"] == 3


def test_what_is_held_begins_every_chunk():
    proposed, warm = torch.rand(2, 3, 4, 2) * 0.4, torch.rand(2, 2, 3, 2) * 0.4
    out = limited(SPEC, proposed, warm=warm, held=2)
    torch.testing.assert_close(out["actions"][:, :, :2], warm[:, :1, :2].expand(-1, 5, -1, -1))
    torch.testing.assert_close(out["actions"][:, :3, 2:], proposed[:, :, 2:])


@pytest.mark.parametrize(
    ("warm", "held", "said"),
    [
        (None, 1, "held is 1; it needs 0 to 0"),
        (torch.zeros(1, 1, 3, 2), 4, "0 to 3"),
        (torch.zeros(1, 1, 3, 2), -1, "held is -1"),
        (torch.zeros(1, 1, 5, 2), 0, "warm has shape"),
        (torch.zeros(1, 1, 3, 3), 0, "warm has shape"),
        (torch.zeros(1, 3, 2), 0, "warm has shape"),
    ],
)
def test_old_chunks_that_do_not_fit(warm, held, said):
    with pytest.raises(InvalidInputError, match=said):
        limited(SPEC, chunks(rows=1), warm=warm, held=held)


@pytest.mark.parametrize(("horizon", "said"), [(5, "horizon is 5"), (0, "horizon is 0")])
def test_a_horizon_that_chunks_have_not(horizon, said):
    with pytest.raises(InvalidInputError, match=said):
        limited(SPEC, chunks(), horizon=horizon)


@pytest.mark.parametrize("shape", [(1, 2, 4, 2), (1, 3, 4, 3), (1, 3, 8)])
def test_a_policy_that_gives_something_else(shape):
    with pytest.raises(ComponentError, match="the world model needs"):
        limited(SPEC, torch.zeros(shape), proposals=3)


def test_the_cheapest_is_chosen_and_ties_go_to_the_first():
    actions = chunks(rows=3)
    out = Choose()(batch(actions=actions, costs=torch.tensor([[3.0, 1.0, 2.0], [1.0, 1.0, 2.0], [NAN, 5.0, -1.0]])))
    assert out["choice"].tolist() == [1, 0, 2]
    assert out["cost"].tolist() == [1.0, 1.0, -1.0]
    assert torch.equal(out["best"], torch.stack([actions[0, 1], actions[1, 0], actions[2, 2]]))


def test_a_proposal_that_is_not_finite_is_never_chosen():
    actions = chunks(rows=1)
    actions[0, 1, 2, 0] = NAN
    out = Choose()(batch(actions=actions, costs=torch.tensor([[3.0, 1.0, 2.0]])))
    assert out["choice"].tolist() == [2]


def test_nothing_finite_is_an_error_where_nothing_comes_after():
    values = {"actions": chunks(rows=1), "costs": torch.tensor([[NAN, float("inf"), NAN]])}
    with pytest.raises(ComponentError, match="none of 3 proposals"):
        Choose()(batch(**values))
    assert Choose(last=False)(batch(**values))["cost"].tolist() == [float("inf")]


def test_a_search_adopts_the_elites_of_the_proposals():
    planner = CEM(CEMConfig(samples=16, elites=2, carry=2, std_floor=0.01))
    candidates, costs = chunks(rows=1, count=4).clamp(-1, 1), torch.tensor([[3.0, 0.0, 2.0, 1.0]])
    out = Adopt(planner)(batch(candidates=candidates, costs=costs))
    best = candidates[:, [1, 3]]
    torch.testing.assert_close(out["mean"], best.mean(1))
    torch.testing.assert_close(out["std"], best.std(1, correction=0).clamp_min(0.01))
    assert torch.equal(out["elites"], best)


def test_proposals_that_agree_leave_room_to_search():
    candidates = torch.full((1, 4, 3, 2), 0.3)
    out = Adopt(CEM(CEMConfig(elites=4, carry=2)), 0.15)(batch(candidates=candidates, costs=torch.ones(1, 4)))
    torch.testing.assert_close(out["std"], torch.full((1, 3, 2), 0.15))


def test_a_search_without_sound_proposals_starts_fresh():
    planner = CEM(CEMConfig(elites=4, carry=2))
    candidates = chunks(rows=2, count=4)
    candidates[0] = NAN
    out = Adopt(planner, 0.1)(batch(candidates=candidates, costs=torch.ones(2, 4)))
    fresh: PlannerState = planner.init((2, 4, 2), None, torch.device("cpu"))
    assert torch.equal(out["mean"][0], fresh.mean[0])
    assert torch.equal(out["std"][0], fresh.std[0])
    assert not torch.equal(out["mean"][1], fresh.mean[1])
    assert out["elites"].isfinite().all()


def test_the_better_plan_is_kept_row_by_row():
    found, best = torch.zeros(4, 3, 2), torch.ones(4, 5, 2)
    costs = {"found_cost": torch.tensor([1.0, 2.0, 1.0, float("inf")]), "best_cost": torch.tensor([2.0, 1.0, 1.0, 7.0])}
    out = Keep()(batch(found=found, best=best, **costs))
    assert out["plan"].shape == (4, 3, 2)
    assert [row.unique().tolist() for row in out["plan"]] == [[0.0], [1.0], [0.0], [1.0]]
    np.testing.assert_array_equal(out["cost"], [1.0, 1.0, 1.0, 7.0])
