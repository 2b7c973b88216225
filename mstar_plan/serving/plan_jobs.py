"""A plan message becomes a job: which solver is to answer what, and which session is to remember it."""

from __future__ import annotations

from dataclasses import dataclass

from mstar_plan.errors import InvalidInputError
from mstar_plan.rollout.solver import PlanSolver
from mstar_plan.serving.limits import ServerLimits
from mstar_plan.serving.messages import decode_floats, decode_goal, decode_observation, decode_warm_start
from mstar_plan.serving.proto.mstar.plan.v1 import planning_pb2 as pb
from mstar_plan.serving.served_models import ServedModels
from mstar_plan.serving.session import Executed, Session, Start
from mstar_plan.serving.sessions import SessionStore
from mstar_plan.types import FloatArray, Goal, Observation, PlanRequest


@dataclass(frozen=True, eq=False)
class Job:
    """A plan request that has been read.

    Attributes:
        model: Name of the model.
        solver: Of that model.
        request: What it is to solve; without a soft time, which the budget sets.
        session: Who is to remember the plan; None for a plan on its own.
        start: What that session began it with.
    """

    model: str
    solver: PlanSolver
    request: PlanRequest
    session: Session | None = None
    start: Start | None = None


class PlanJobs:
    """Reads plan messages.

    Args:
        models: What is served.
        sessions: All sessions.
        limits: What one message may hold.
    """

    def __init__(self, models: ServedModels, sessions: SessionStore, limits: ServerLimits) -> None:
        self._models, self._sessions, self._limits = models, sessions, limits

    def read(self, request: pb.PlanRequest, peer: str) -> Job:
        """Reads one.

        Args:
            request: The message.
            peer: Who sent it; fairness between plans on their own is kept by it.

        Raises:
            InvalidInputError, LimitExceededError, NotFoundError, UnavailableError: It cannot be answered.
        """
        _refuse_constraints(request)
        return self._in_session(request) if request.session_id else self._alone(request, peer)

    def _alone(self, request: pb.PlanRequest, peer: str) -> Job:
        for name in ("session_epoch", "executed_steps", "executed_actions"):
            if request.HasField(name):
                what = f"{name} is given without session_id"
                raise InvalidInputError(f"{what}; leave it out, or plan in a session", field=name)
        model, solver = self._models.ready(request.model)
        goal = decode_goal(request.goal, self._limits)
        asked = self._read(request, decode_observation(request.observation, self._limits), goal, request.seed)
        return Job(model, solver, asked.but(session=peer))

    def _in_session(self, request: pb.PlanRequest) -> Job:
        for name, instead in (("goal", "call UpdateGoal"), ("context", "the session keeps it")):
            if request.HasField(name):
                raise InvalidInputError(f"{name} is given with session_id; leave it out: {instead}", field=name)
        session = self._sessions.get(request.session_id)
        if request.model and request.model != session.model:
            what = f"model is {request.model!r}, but the session is of {session.model!r}"
            raise InvalidInputError(f"{what}; leave it out, or make another session", field="model")
        solver = self._models.ready(session.model)[1]
        start = session.begin(
            decode_observation(request.observation, self._limits),
            self._executed(request),
            request.horizon if request.HasField("horizon") else solver.defaults.horizon,
            request.session_epoch if request.HasField("session_epoch") else None,
        )
        known = start.request
        seed = request.seed if request.HasField("seed") else known.seed
        asked = self._read(request, known.observation, known.goal, seed)
        warm_start = None if request.ignore_warm_start else known.warm_start
        return Job(
            session.model,
            solver,
            asked.but(
                warm_start=asked.warm_start or warm_start,
                context_latents=known.context_latents,
                context_actions=known.context_actions,
                session=session.session_id,
            ),
            session,
            start,
        )

    def _read(self, request: pb.PlanRequest, observation: Observation, goal: Goal, seed: int) -> PlanRequest:
        budget, context, limits = request.budget, request.context, self._limits
        return PlanRequest(
            observation,
            goal,
            seed=seed,
            horizon=request.horizon if request.HasField("horizon") else None,
            iterations=budget.iterations if budget.HasField("iterations") else None,
            samples=budget.samples if budget.HasField("samples") else None,
            warm_start=decode_warm_start(request.warm_start, limits) if request.HasField("warm_start") else None,
            deterministic=request.deterministic,
            want_predicted=request.want_predicted,
            context_latents=_part(context, "latents", 3, limits),
            context_actions=_part(context, "actions", 2, limits),
        )

    def _executed(self, request: pb.PlanRequest) -> Executed:
        steps = request.executed_steps if request.HasField("executed_steps") else None
        if not request.HasField("executed_actions"):
            return Executed(steps)
        return Executed(steps, decode_floats(request.executed_actions, "executed_actions", self._limits, ndim=2))


def _part(context: pb.Context, name: str, ndim: int, limits: ServerLimits) -> FloatArray | None:
    if not context.HasField(name):
        return None
    return decode_floats(getattr(context, name), f"context.{name}", limits, ndim=ndim)


def _refuse_constraints(request: pb.PlanRequest) -> None:
    given = [field.name for field, _ in request.constraints.ListFields()]
    if given:
        what = f"constraints.{given[0]} is given, and this server plans with the model's own limits alone"
        cure = "leave them out (its features do not list action_constraints)"
        raise InvalidInputError(f"{what}: {cure}", field=f"constraints.{given[0]}")
