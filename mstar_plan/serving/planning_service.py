"""PlanningService: what each call of `mstar.plan.v1` does, on parsed messages and without the socket."""

from __future__ import annotations

import concurrent.futures
import itertools
import threading
from concurrent.futures import Future
from dataclasses import replace

from mstar_plan import __version__
from mstar_plan.errors import CancelledError, DeadlineError, OverloadedError
from mstar_plan.rollout.solver import PlanSolver
from mstar_plan.serving.budget import SearchTime, search_time
from mstar_plan.serving.dispatch import Call
from mstar_plan.serving.limits import ServerLimits
from mstar_plan.serving.messages import decode_goal
from mstar_plan.serving.plan_jobs import PlanJobs
from mstar_plan.serving.plan_messages import encode_plan
from mstar_plan.serving.proto.mstar.plan.v1 import planning_pb2 as pb
from mstar_plan.serving.served_models import ServedModels
from mstar_plan.serving.session import Session
from mstar_plan.serving.sessions import SessionStore, check_seed
from mstar_plan.types import Goal, Plan, PlanStatus

API_VERSION = "mstar.plan.v1"
API_REVISION = 2
FEATURES = ("sessions", "soft_time", "jpeg", "png", "warm_start", "predicted", "deterministic")
RETRY_AFTER_S = 0.05  # about one plan
OVERTIME_S = 5.0  # after its soft time, a search that has not ended is given up

_CUT_SHORT = (PlanStatus.BUDGET_EXHAUSTED, PlanStatus.WARM_START_ONLY, PlanStatus.HOLD)


class PlanningService:
    """Answers the calls of `mstar.plan.v1`. Thread-safe.

    Args:
        models: What is served.
        limits: What one message may hold, and how much goes on at one time.
        reply_margin_s: Seconds before a call's deadline at which its search ends, so that the reply comes in time.
    """

    def __init__(self, models: ServedModels, limits: ServerLimits, *, reply_margin_s: float) -> None:
        self._models, self._limits, self._margin_s = models, limits, reply_margin_s
        self._sessions = SessionStore(limits)
        self._jobs = PlanJobs(models, self._sessions, limits)
        self._places = threading.BoundedSemaphore(limits.max_concurrent_plans)
        self._plan_ids = itertools.count(1)

    def get_server_info(self, request: pb.GetServerInfoRequest, call: Call) -> pb.ServerInfo:
        """Says what this server is."""
        del request, call
        limits = self._limits
        return pb.ServerInfo(
            api_version=API_VERSION,
            api_revision=API_REVISION,
            server_version=__version__,
            features=FEATURES,
            models=self._models.infos(),
            limits=pb.ServerLimits(
                max_message_bytes=limits.max_message_bytes,
                max_image_pixels=limits.max_image_pixels,
                max_images=limits.max_images,
                max_tensor_rank=limits.max_tensor_rank,
                max_tensor_elements=limits.max_tensor_elements,
                max_sessions=limits.max_sessions,
                max_session_ttl_s=limits.max_session_ttl_s,
                max_concurrent_plans=limits.max_concurrent_plans,
                reply_margin_s=self._margin_s,
            ),
        )

    def list_models(self, request: pb.ListModelsRequest, call: Call) -> pb.ListModelsResponse:
        """Says what each model takes and gives."""
        del request, call
        return pb.ListModelsResponse(models=self._models.infos())

    def create_session(self, request: pb.CreateSessionRequest, call: Call) -> pb.Session:
        """Opens a session."""
        del call
        name, solver = self._models.ready(request.model)
        session = self._sessions.create(
            name,
            solver,
            seed=request.seed,
            goal=self._encoded(request.goal, solver) if request.HasField("goal") else None,
            ttl_s=request.ttl_s if request.HasField("ttl_s") else None,
        )
        return _session_message(session)

    def reset_session(self, request: pb.ResetSessionRequest, call: Call) -> pb.Session:
        """Starts a new episode in a session."""
        del call
        session = self._sessions.get(request.session_id)
        goal = None
        if request.HasField("goal"):
            goal = self._encoded(request.goal, self._models.ready(session.model)[1])
        seed = request.seed if request.HasField("seed") else None
        if seed is not None:
            check_seed(seed)
        session.reset(goal, seed)
        return _session_message(session)

    def update_goal(self, request: pb.UpdateGoalRequest, call: Call) -> pb.Session:
        """Changes the goal of a session."""
        del call
        session = self._sessions.get(request.session_id)
        session.update_goal(self._encoded(request.goal, self._models.ready(session.model)[1]))
        return _session_message(session)

    def close_session(self, request: pb.CloseSessionRequest, call: Call) -> pb.CloseSessionResponse:
        """Forgets a session."""
        del call
        self._sessions.close(request.session_id)
        return pb.CloseSessionResponse()

    def plan(self, request: pb.PlanRequest, call: Call) -> pb.PlanResponse:
        """Plans once."""
        if not self._places.acquire(blocking=False):
            what = f"{self._limits.max_concurrent_plans} plans are being made, which is max_concurrent_plans"
            raise OverloadedError(f"{what}; try again in {RETRY_AFTER_S} s", retry_after_s=RETRY_AFTER_S)
        try:
            return self._plan(request, call)
        finally:
            self._places.release()

    def _plan(self, request: pb.PlanRequest, call: Call) -> pb.PlanResponse:
        job = self._jobs.read(request, call.context.peer())
        decode_s = call.elapsed_s()
        given = search_time(
            asked_s=request.budget.soft_time_s if request.budget.HasField("soft_time_s") else None,
            elapsed_s=decode_s,
            remaining_s=call.remaining_s(),
            margin_s=self._margin_s,
            cap_s=job.solver.limits.max_soft_time_s,
        )
        asked = job.request.but(soft_time_s=given.left_s)
        plan = _wait(job.solver.submit(asked, deadline_s=call.remaining_s()), call, given)
        if request.budget.anytime == pb.ANYTIME_POLICY_FAIL and plan.status in _CUT_SHORT:
            raise DeadlineError(f"the search was cut short ({plan.status.value}): it had {given}", field="budget")
        if job.session is not None and job.start is not None:
            job.session.finish(job.start, plan)
        timing = replace(plan.timing, decode_ms=1e3 * decode_s, total_ms=1e3 * call.elapsed_s())
        reply = encode_plan(replace(plan, timing=timing), request, given)
        reply.model, reply.plan_id = job.model, next(self._plan_ids)
        reply.session_epoch = 0 if job.start is None else job.start.epoch
        return reply

    def _encoded(self, message: pb.Goal, solver: PlanSolver) -> Goal:
        """Reads a goal; a picture is encoded once, here, so that plans need not."""
        goal = decode_goal(message, self._limits)
        return goal if goal.frame is None else Goal(latent=solver.encode(goal.frame))


def _wait(future: Future[Plan], call: Call, given: SearchTime) -> Plan:
    """Waits for a plan as long as its call lasts; a call that ends takes the plan back."""
    call.on_end(future.cancel)
    remaining_s = call.remaining_s()
    try:
        return future.result(given.left_s + OVERTIME_S if remaining_s is None else remaining_s)
    except concurrent.futures.CancelledError as error:
        raise CancelledError("the call ended before its plan was made") from error
    except TimeoutError as error:
        future.cancel()
        raise DeadlineError(f"no plan in time: the search had {given}, and did not end with it") from error


def _session_message(session: Session) -> pb.Session:
    return pb.Session(
        session_id=session.session_id,
        model=session.model,
        epoch=session.epoch,
        seed=session.seed,
        ttl_s=session.ttl_s,
        has_goal=session.goal is not None,
    )
