"""Plan requests and plans keep every field on their way."""

from __future__ import annotations

import math

import numpy as np
import pytest
from serving_world import GOAL, NOW

from mstar_plan.errors import InvalidInputError
from mstar_plan.serving.budget import SearchTime
from mstar_plan.serving.limits import ServerLimits
from mstar_plan.serving.plan_messages import decode_plan, encode_plan, encode_plan_request
from mstar_plan.serving.proto.mstar.plan.v1 import planning_pb2 as pb
from mstar_plan.types import Goal, Observation, Plan, PlanRequest, PlanStatus, PlanTiming, WarmStart

GIVEN = SearchTime(0.05, 0.04, pb.BUDGET_SOURCE_REQUEST)
PLAN = Plan(
    actions=np.ones((4, 2), np.float32),
    cost=0.25,
    dt_s=0.1,
    status=PlanStatus.CONVERGED,
    iterations=2,
    samples=32,
    cost_history=(0.5, 0.25),
    std=np.full((4, 2), 0.1, np.float32),
    warm_start=WarmStart(np.ones((4, 2)), np.ones((1, 4, 2))),
    predicted=np.zeros((4, 1, 2), np.float32),
    latent=np.ones((1, 2), np.float32),
    seed=2**62,
    observation_seq=11,
    timing=PlanTiming(1.0, 2.0, 3.0, 4.0, 5.0, 6),
)


@pytest.mark.parametrize("wanted", [True, False])
def test_plans(wanted):
    message = encode_plan(PLAN, pb.PlanRequest(want_warm_start=wanted, request_id=5), GIVEN)
    back = decode_plan(pb.PlanResponse.FromString(message.SerializeToString()), ServerLimits())
    for name in ("actions", "cost", "dt_s", "status", "iterations", "samples", "std", "predicted", "latent", "seed"):
        np.testing.assert_equal(getattr(back, name), getattr(PLAN, name))
    assert back.cost_history == PLAN.cost_history
    assert back.timing == PLAN.timing
    assert (back.warm_start is not None) is wanted
    assert message.request_id == 5


@pytest.mark.parametrize("status", list(PlanStatus))
def test_every_status_travels(status):
    plan = Plan(PLAN.actions, math.nan, 0.1, status)
    back = decode_plan(encode_plan(plan, pb.PlanRequest(), GIVEN), ServerLimits())
    assert back.status is status
    assert math.isnan(back.cost)
    assert bool(back.message) is (status in (PlanStatus.BUDGET_EXHAUSTED, PlanStatus.WARM_START_ONLY))


def test_a_status_of_the_future():
    message = encode_plan(PLAN, pb.PlanRequest(), GIVEN)
    message.status = 99
    with pytest.raises(InvalidInputError, match="update the client"):
        decode_plan(message, ServerLimits())


def test_what_is_not_asked_for_is_absent():
    bare = encode_plan_request(PlanRequest(Observation(NOW[None]), Goal(frame=GOAL)), "raw", "toy")
    assert not bare.HasField("horizon")
    assert not any(bare.budget.HasField(name) for name in ("soft_time_s", "iterations", "samples"))
    full = PlanRequest(Observation(NOW[None]), Goal(frame=GOAL), horizon=3, iterations=1, samples=64, soft_time_s=0.5)
    asked = encode_plan_request(full, "raw", "toy")
    assert (asked.horizon, asked.budget.iterations, asked.budget.samples, asked.budget.soft_time_s) == (3, 1, 64, 0.5)
