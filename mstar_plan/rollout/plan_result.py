"""The result of a plan walk becomes a Plan: finite, inside the limits, and honest about how the search ended."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from mstar_plan.errors import ComponentError
from mstar_plan.models.world_model import ModelSpec
from mstar_plan.rollout.constraints import worst_violation
from mstar_plan.rollout.limits import PlanDefaults
from mstar_plan.rollout.plan_walk import SEARCH
from mstar_plan.runtime.request import RequestTiming, WalkResult
from mstar_plan.types import ActionSpec, FloatArray, Plan, PlanRequest, PlanStatus, PlanTiming, WarmStart
from mstar_plan.walks.loop_run import LoopStop

STATUS: Mapping[LoopStop, PlanStatus] = {
    LoopStop.COUNT: PlanStatus.COMPLETE,
    LoopStop.UNTIL: PlanStatus.CONVERGED,
    LoopStop.POLICY: PlanStatus.CONVERGED,
    LoopStop.BUDGET: PlanStatus.BUDGET_EXHAUSTED,
}


def row(value: Tensor) -> FloatArray:
    """The only row of a tensor [1, ...] as a float32 array of its own."""
    return np.array(value[0].float().numpy(force=True), dtype=np.float32)  # NumPy has no bfloat16


def plan_of(result: WalkResult, request: PlanRequest, spec: ModelSpec, sizes: PlanDefaults) -> Plan:
    """The plan that a finished walk found.

    Raises:
        ComponentError: No candidate had a finite cost, or the plan is not finite or not inside the limits.
    """
    outputs, end = result.outputs, result.loop_ends[SEARCH]
    actions, std, mean_and_elites = _sequences(outputs)
    cost = outputs["cost"].item()
    last = request.context_actions[-1] if request.context_actions is not None else None
    history = tuple(itertools.accumulate(outputs["cost_history"][0].tolist(), min))
    _check(actions, max(cost, history[-1]), spec, last, sizes)
    return Plan(
        actions=actions,
        cost=cost,
        dt_s=spec.action.dt_s,
        status=STATUS[end.stop],
        iterations=end.iterations,
        samples=sizes.samples,
        cost_history=history,
        std=std * _scale(spec.action)[1],
        warm_start=_warm_start(mean_and_elites, spec.action),
        seed=request.seed,
        observation_seq=request.observation.seq,
        latent=row(outputs["latents"][:, -1]) if spec.context_frames > 1 else None,
        timing=timing_of(result.timing),
    )


def timing_of(timing: RequestTiming) -> PlanTiming:
    """Where the time went; a call that was shared counts in full for each request that shared it."""
    encode_s = timing.component_s.get("encode", 0.0)
    return PlanTiming(
        queue_ms=1e3 * timing.queue_s,
        encode_ms=1e3 * encode_s,
        search_ms=1e3 * max(0.0, timing.run_s - encode_s),
        total_ms=1e3 * (timing.queue_s + timing.run_s),
        batch_size=timing.largest_batch,
    )


@functools.lru_cache(maxsize=64)
def _scale(spec: ActionSpec) -> tuple[FloatArray, FloatArray]:
    """Centre and half range of the actions, [A] each."""
    low, high = spec.low, spec.high
    return np.asarray((high + low) / 2, np.float32), np.asarray((high - low) / 2, np.float32)


def _sequences(outputs: Mapping[str, Tensor]) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Plan and std [H, A], mean and elites [1 + E, H, A] of the only row, brought over from the device as one."""
    plan, std, mean = (outputs[name][:, None] for name in ("plan", "std", "mean"))
    joined = row(torch.cat([plan, std, mean, outputs["elites"]], 1))
    return joined[0], joined[1], joined[2:]


def _warm_start(mean_and_elites: FloatArray, spec: ActionSpec) -> WarmStart:
    centre, half = _scale(spec)
    scaled = np.clip(centre + half * mean_and_elites, spec.low, spec.high)
    return WarmStart(scaled[0], scaled[1:])


def _check(actions: FloatArray, cost: float, spec: ModelSpec, last: FloatArray | None, sizes: PlanDefaults) -> None:
    if not math.isfinite(cost):
        raise ComponentError(
            f"model {spec.name!r} gave none of {sizes.samples} candidates a finite cost; check weights and image",
            details={"cause": "NON_FINITE_COST"},
        )
    wrong = worst_violation(actions, spec.action, last)  # NaN is inside no bounds
    if wrong and not np.isfinite(actions).all():
        raise ComponentError("the plan holds actions that are not finite", details={"cause": "NON_FINITE_ACTION"})
    if wrong:
        raise ComponentError(f"the plan breaks the limits: {wrong}", details={"cause": "LIMIT_VIOLATED"})
