"""Nothing leaves that is not finite or not inside the limits, and the status says how the search ended."""

import numpy as np
import pytest
import torch
from planning_worlds import Slow, request

from mstar_plan.errors import ComponentError
from mstar_plan.rollout.limits import PlanDefaults
from mstar_plan.rollout.plan_result import plan_of
from mstar_plan.runtime.request import RequestTiming, WalkResult
from mstar_plan.types import Plan, PlanStatus
from mstar_plan.walks.loop_run import LoopEnd, LoopStop

SIZES = PlanDefaults(horizon=3, iterations=2, samples=9)
SPEC = Slow().spec


def plan(stop: LoopStop = LoopStop.COUNT, last: list[float] | None = None, **changes: torch.Tensor) -> Plan:
    outputs = {
        "plan": torch.tensor([[[0.1, 0.0], [0.2, 0.4], [0.3, 0.8]]]),
        "cost": torch.tensor([1.5]),
        "cost_history": torch.tensor([[2.0, 2.5, 1.5]]),
        "mean": torch.zeros(1, 3, 2),
        "std": torch.full((1, 3, 2), 0.5),
        "elites": torch.ones(1, 2, 3, 2),
        "latents": torch.zeros(1, 1, 1, 2),
    }
    timing = RequestTiming(0.001, 0.010, {"encode": 0.002, "predict": 0.005}, largest_batch=4)
    result = WalkResult({**outputs, **changes}, {"search": LoopEnd(stop, 3)}, timing)
    asked = request(seed=5)
    if last is not None:
        asked = asked.but(context_actions=np.array([last], np.float32))
    return plan_of(result, asked, SPEC, SIZES)


def test_everything_is_in_the_actions_units() -> None:
    found = plan()
    assert found.actions.dtype == np.float32
    assert found.actions.tolist() == pytest.approx(np.array([[0.1, 0.0], [0.2, 0.4], [0.3, 0.8]]))
    assert found.std.tolist() == [[0.375, 0.5]] * 3
    assert found.warm_start.mean.tolist() == [[0.25, 0.0]] * 3
    assert found.warm_start.elites.tolist() == [[[1.0, 1.0]] * 3] * 2
    assert found.cost_history == (2.0, 2.0, 1.5)
    assert (found.cost, found.seed, found.iterations, found.samples, found.dt_s) == (1.5, 5, 3, 9, 0.1)
    assert found.latent is None
    timing = found.timing
    assert (timing.queue_ms, timing.encode_ms, timing.search_ms, timing.total_ms) == pytest.approx((1, 2, 8, 11))
    assert timing.batch_size == 4


@pytest.mark.parametrize(
    ("stop", "status"),
    [
        (LoopStop.COUNT, PlanStatus.COMPLETE),
        (LoopStop.UNTIL, PlanStatus.CONVERGED),
        (LoopStop.POLICY, PlanStatus.CONVERGED),
        (LoopStop.BUDGET, PlanStatus.BUDGET_EXHAUSTED),
    ],
)
def test_status(stop: LoopStop, status: PlanStatus) -> None:
    assert plan(stop).status is status


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"cost": torch.tensor([torch.inf])}, "NON_FINITE_COST"),
        ({"cost": torch.tensor([torch.nan])}, "NON_FINITE_COST"),
        ({"cost_history": torch.full((1, 3), torch.inf)}, "NON_FINITE_COST"),
        ({"plan": torch.full((1, 3, 2), torch.nan)}, "NON_FINITE_ACTION"),
        ({"plan": torch.full((1, 3, 2), 1.1)}, "LIMIT_VIOLATED"),
        ({"plan": torch.tensor([[[0.0, 0.0], [0.3, 0.0], [0.3, 0.0]]])}, "LIMIT_VIOLATED"),
        ({"last": [0.5, 0.0]}, "LIMIT_VIOLATED"),
    ],
)
def test_a_bad_plan_does_not_leave(changes: dict, cause: str) -> None:
    with pytest.raises(ComponentError) as error:
        plan(**changes)
    assert error.value.details["cause"] == cause
