"""PlanSolver: a PlanRequest goes in, a Plan comes out; in between is one walk on the runtime."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, InvalidStateError
from dataclasses import replace

from mstar_plan.models.world_model import ModelSpec
from mstar_plan.rollout.goal_cache import GoalCache
from mstar_plan.rollout.limits import PlanDefaults, PlanLimits, candidates_at_once, effort
from mstar_plan.rollout.plan_result import plan_of, row
from mstar_plan.rollout.plan_values import batch_of_one, check_frame_size, context_values, walk_values
from mstar_plan.rollout.plan_walk import walk_name
from mstar_plan.rollout.planner import PlannerConfig
from mstar_plan.runtime.request import Request, WalkResult
from mstar_plan.runtime.runtime import Runtime
from mstar_plan.types import FloatArray, Goal, ImageArray, Plan, PlanRequest, check_image

TILE = 32  # candidates in one call of a deterministic plan


class PlanSolver:
    """Plans with one model of a runtime. Thread-safe; requests of many threads share batches.

    Args:
        spec: Of the model.
        runtime: Has the model's `plan_graph`; whoever made it closes it.
        planner: The settings that the graph was made with.
        limits: What a request may ask for.
        graph: Name of the graph; may be None where the runtime has one.
        footprint: Bytes that rolling out (candidates, horizon) holds; None: nothing to speak of.
    """

    def __init__(
        self,
        spec: ModelSpec,
        runtime: Runtime,
        planner: PlannerConfig,
        *,
        limits: PlanLimits | None = None,
        graph: str | None = None,
        footprint: Callable[[int, int], int] | None = None,
    ) -> None:
        self.spec, self.runtime, self.graph = spec, runtime, graph
        self.limits = limits or PlanLimits()
        self.defaults = PlanDefaults(planner.horizon, planner.iterations, planner.samples)
        self._fewest_samples = planner.fewest_samples
        self._footprint = footprint
        self._goals = GoalCache()

    def encode(self, frame: ImageArray) -> FloatArray:
        """Encodes one frame [H_px, W_px, 3] uint8 to its latent [N, D].

        Raises:
            InvalidInputError: It is no image, or has another size than the model's.
        """
        check_frame_size(check_image(frame, "frame", ndim=3), self.spec, "frame")
        request = self.runtime.submit("encode", {"frames": batch_of_one(frame[None])}, graph=self.graph, here=True)
        return row(request.result().outputs["latents"][:, 0])

    def solve(self, request: PlanRequest, *, deadline_s: float | None = None) -> Plan:
        """Plans, and waits for it; see `submit`. Where nobody else plans, the calling thread does the work."""
        sizes, pending = self._start(request, deadline_s, here=True)
        try:
            plan = self._plan(pending.result(), request, sizes)
            if not request.want_predicted:
                return plan
            pending = self._predict(request, plan, here=True)
            return _with_prediction(plan, pending.result())
        finally:
            pending.cancel()  # if the caller was interrupted: nobody else can want it

    def submit(self, request: PlanRequest, *, deadline_s: float | None = None) -> Future[Plan]:
        """Starts planning.

        Args:
            request: What is asked for.
            deadline_s: Seconds from now after which no plan is worth anything.

        Returns:
            A future; cancelling it takes the request back. It may raise ComponentError (the model gave nothing finite),
            DeadlineError, CancelledError or UnavailableError.

        Raises:
            InvalidInputError: The request does not fit the model or the planner.
            LimitExceededError: It asks for too much.
            OverloadedError: The queue is full.
        """
        sizes, pending = self._start(request, deadline_s)
        future: Future[Plan] = Future()
        under_way = [pending]  # let go of at the end: two futures that hold each other would keep every tensor alive

        def found(ended: Future[WalkResult]) -> None:
            under_way.clear()
            self._found(ended, future, request, sizes)

        future.add_done_callback(lambda ended: [each.cancel() for each in under_way] if ended.cancelled() else None)
        pending.add_done_callback(found)
        return future

    def _start(
        self, request: PlanRequest, deadline_s: float | None, *, here: bool = False
    ) -> tuple[PlanDefaults, Request]:
        sizes = effort(request, self.defaults, self.limits, self.spec)
        values = walk_values(self._with_known_goal(request), self.spec, sizes, self._fewest_samples)
        tile = self.tile(sizes, request.deterministic)
        if tile is not None:
            values["tile"] = tile
        goal = "goal_frames" if "goal_frames" in values else "goal_latent"
        pending = self.runtime.submit(
            walk_name(goal, tile is not None),
            values,
            graph=self.graph,
            deadline_s=deadline_s,
            soft_time_s=request.soft_time_s,
            session=request.session,
            deterministic=request.deterministic,
            here=here,
        )
        return sizes, pending

    def tile(self, sizes: PlanDefaults, deterministic: bool = False) -> int | None:
        """How many candidates are rolled out at a time; None: all at once.

        Raises:
            LimitExceededError: Not even one fits into the memory that a plan may hold.
        """
        wanted = TILE if deterministic else sizes.samples
        if self._footprint is None or self.limits.max_memory_mb == 0:
            return TILE if deterministic else None
        most = candidates_at_once(wanted, sizes.horizon, self._footprint, self.limits, self.spec)
        return most if deterministic or most < wanted else None

    def _with_known_goal(self, request: PlanRequest) -> PlanRequest:
        """The request with its goal encoded, if that picture was planned towards before."""
        if request.goal.frame is None:
            return request
        known = self._goals.find(request.goal.frame)
        return request if known is None else request.but(goal=Goal(latent=known))

    def _plan(self, result: WalkResult, request: PlanRequest, sizes: PlanDefaults) -> Plan:
        """The plan of a finished walk; an encoded goal is kept."""
        encoded = result.outputs.get("goal_latent")
        if encoded is not None and request.goal.frame is not None:
            self._goals.keep(request.goal.frame, row(encoded[:, 0]))
        return plan_of(result, request, self.spec, sizes)

    def _found(
        self, ended: Future[WalkResult], future: Future[Plan], request: PlanRequest, sizes: PlanDefaults
    ) -> None:
        """Turns the walk's result into a plan, in the worker's thread; and asks for its prediction, if it is wanted."""
        with _failing(future):
            plan = self._plan(ended.result(), request, sizes)
            if not request.want_predicted:
                future.set_result(plan)
                return
            rollout = self._predict(request, plan)
            rollout.add_done_callback(lambda r: self._predicted(r, future, plan))

    def _predict(self, request: PlanRequest, plan: Plan, *, here: bool = False) -> Request:
        values = {
            **context_values(request, self.spec),
            "actions": batch_of_one(plan.actions[None]),
            "candidates": 1,
            "horizon": len(plan.actions),
        }
        return self.runtime.submit(
            "rollout", values, graph=self.graph, session=request.session, deterministic=request.deterministic, here=here
        )

    def _predicted(self, ended: Future[WalkResult], future: Future[Plan], plan: Plan) -> None:
        with _failing(future):
            future.set_result(_with_prediction(plan, ended.result()))


def _with_prediction(plan: Plan, result: WalkResult) -> Plan:
    return replace(plan, predicted=row(result.outputs["predicted"][:, 0]))


@contextlib.contextmanager
def _failing(future: Future[Plan]) -> Iterator[None]:
    """Hands an error to whoever waits for the future; one that was cancelled meanwhile stays so."""
    try:
        yield
    except InvalidStateError:
        return
    except BaseException as error:
        with contextlib.suppress(InvalidStateError):
            future.set_exception(error)
