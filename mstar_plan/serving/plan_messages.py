"""Plan requests and plans to and from their messages.

Shapes: H horizon, A action, N latent tokens, D width, S executed steps.
"""

from __future__ import annotations

import math

from mstar_plan.errors import InvalidInputError
from mstar_plan.serving.budget import SearchTime
from mstar_plan.serving.codec import ImageFormat, encode_tensor
from mstar_plan.serving.limits import ServerLimits
from mstar_plan.serving.messages import (
    decode_floats,
    decode_warm_start,
    encode_goal,
    encode_observation,
    encode_warm_start,
)
from mstar_plan.serving.proto.mstar.plan.v1 import planning_pb2 as pb
from mstar_plan.types import FloatArray, Plan, PlanRequest, PlanStatus, PlanTiming

_STATUS = {
    PlanStatus.COMPLETE: pb.PLAN_STATUS_COMPLETE,
    PlanStatus.CONVERGED: pb.PLAN_STATUS_CONVERGED,
    PlanStatus.BUDGET_EXHAUSTED: pb.PLAN_STATUS_BUDGET_EXHAUSTED,
    PlanStatus.WARM_START_ONLY: pb.PLAN_STATUS_WARM_START_ONLY,
    PlanStatus.HOLD: pb.PLAN_STATUS_HOLD,
}
_STATUS_OF = {number: status for status, number in _STATUS.items()}


def encode_plan_request(request: PlanRequest, form: ImageFormat, model: str) -> pb.PlanRequest:
    """Puts a plan request on the wire, as one on its own: with its goal and context."""
    message = encode_search(request, form)
    message.model = model
    message.goal.CopyFrom(encode_goal(request.goal, form))
    if request.context_latents is not None:
        message.context.latents.CopyFrom(encode_tensor(request.context_latents, "latents"))
    if request.context_actions is not None:
        message.context.actions.CopyFrom(encode_tensor(request.context_actions, "actions"))
    return message


def encode_search(request: PlanRequest, form: ImageFormat) -> pb.PlanRequest:
    """Puts on the wire what plans on their own and plans of a session have in common, the seed included."""
    message = pb.PlanRequest(
        observation=encode_observation(request.observation, form),
        seed=request.seed,
        horizon=request.horizon,
        budget=pb.Budget(soft_time_s=request.soft_time_s, iterations=request.iterations, samples=request.samples),
        deterministic=request.deterministic,
        want_predicted=request.want_predicted,
    )
    if request.warm_start is not None:
        message.warm_start.CopyFrom(encode_warm_start(request.warm_start))
    return message


def encode_plan(plan: Plan, request: pb.PlanRequest, given: SearchTime) -> pb.PlanResponse:
    """Puts a plan on the wire, with what its request asked to be echoed or returned."""
    message = pb.PlanResponse(
        request_id=request.request_id,
        observation_seq=plan.observation_seq,
        capture_mono_ns=request.observation.capture_mono_ns,
        actions=encode_tensor(plan.actions, "actions"),
        dt_s=plan.dt_s,
        status=_STATUS[plan.status],
        message=plan.message or (_why(plan, given)),
        cost=pb.CostStats(
            best=plan.cost if math.isfinite(plan.cost) else None,
            best_per_iteration=plan.cost_history,
            iterations=plan.iterations,
            samples=plan.samples,
        ),
        seed=plan.seed,
        budget=pb.EffectiveBudget(soft_time_s=given.total_s, source=given.source),
        timing=_timing(plan.timing),
    )
    if plan.std is not None:
        message.action_std.CopyFrom(encode_tensor(plan.std, "action_std"))
    if plan.latent is not None:
        message.latent.CopyFrom(encode_tensor(plan.latent, "latent"))
    if plan.predicted is not None:
        message.predicted.CopyFrom(encode_tensor(plan.predicted, "predicted"))
    if plan.warm_start is not None and request.want_warm_start:
        message.warm_start.CopyFrom(encode_warm_start(plan.warm_start))
    return message


def decode_plan(message: pb.PlanResponse, limits: ServerLimits) -> Plan:
    """Reads a plan; what was not asked for is None.

    Raises:
        InvalidInputError: The reply is damaged, or of a status that this client does not know.
    """
    status = _STATUS_OF.get(message.status)
    if status is None:
        what = f"the reply has status number {message.status}, which this client does not know"
        raise InvalidInputError(f"{what}; update the client", field="status")
    return Plan(
        actions=decode_floats(message.actions, "actions", limits, ndim=2),
        cost=message.cost.best if message.cost.HasField("best") else math.nan,
        dt_s=message.dt_s,
        status=status,
        iterations=message.cost.iterations,
        samples=message.cost.samples,
        cost_history=tuple(message.cost.best_per_iteration),
        std=_optional(message, "action_std", 2, limits),
        warm_start=decode_warm_start(message.warm_start, limits) if message.HasField("warm_start") else None,
        predicted=_optional(message, "predicted", 3, limits),
        seed=message.seed,
        observation_seq=message.observation_seq,
        latent=_optional(message, "latent", 2, limits),
        message=message.message,
        timing=PlanTiming(
            queue_ms=message.timing.queue_ms,
            decode_ms=message.timing.decode_ms,
            encode_ms=message.timing.encode_ms,
            search_ms=message.timing.search_ms,
            total_ms=message.timing.total_ms,
            batch_size=message.timing.batch_size,
        ),
    )


def _optional(message: pb.PlanResponse, name: str, ndim: int, limits: ServerLimits) -> FloatArray | None:
    return decode_floats(getattr(message, name), name, limits, ndim=ndim) if message.HasField(name) else None


def _why(plan: Plan, given: SearchTime) -> str:
    ended = plan.status in (PlanStatus.BUDGET_EXHAUSTED, PlanStatus.WARM_START_ONLY)
    return f"the search had {given}" if ended else ""


def _timing(timing: PlanTiming) -> pb.Timing:
    return pb.Timing(
        decode_ms=timing.decode_ms,
        queue_ms=timing.queue_ms,
        encode_ms=timing.encode_ms,
        search_ms=timing.search_ms,
        total_ms=timing.total_ms,
        batch_size=timing.batch_size,
    )
