"""The client's side of a session, and what a server says about a plan. Needs no torch."""

from __future__ import annotations

import time
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from mstar_plan.serving.codec import encode_tensor
from mstar_plan.serving.connection import Connection
from mstar_plan.serving.messages import encode_goal, encode_observation
from mstar_plan.serving.plan_messages import decode_plan
from mstar_plan.serving.proto.mstar.plan.v1 import planning_pb2 as pb
from mstar_plan.types import FloatArray, Goal, Observation, Plan

_SOURCES = {
    pb.BUDGET_SOURCE_REQUEST: "request",
    pb.BUDGET_SOURCE_DEADLINE: "deadline",
    pb.BUDGET_SOURCE_SERVER: "server",
}


@dataclass(frozen=True, eq=False)
class PlanReply:
    """A plan, and what its server says about it.

    Attributes:
        plan: The plan.
        model: Name of the model that made it.
        plan_id: Counts up, unique in one run of the server.
        session_epoch: Episode of the session that it is for; 0 outside of sessions.
        soft_time_s: Seconds that the search was given.
        budget_source: What set them: "request", "deadline" or "server".
        round_trip_ms: Milliseconds from call to reply, on this side.
    """

    plan: Plan
    model: str
    plan_id: int
    session_epoch: int
    soft_time_s: float
    budget_source: str
    round_trip_ms: float


def send_plan(link: Connection, message: pb.PlanRequest, timeout_s: float | None) -> PlanReply:
    """Sends a plan message and reads the reply."""
    begun = time.perf_counter()
    reply = link.call(link.planning.Plan, message, timeout_s)
    round_trip_ms = 1e3 * (time.perf_counter() - begun)
    return PlanReply(
        plan=decode_plan(reply, link.limits),
        model=reply.model,
        plan_id=reply.plan_id,
        session_epoch=reply.session_epoch,
        soft_time_s=reply.budget.soft_time_s,
        budget_source=_SOURCES.get(reply.budget.source, "unknown"),
        round_trip_ms=round_trip_ms,
    )


class PlanSession:
    """A session of one robot; a context manager that closes it. `PlanClient.create_session` makes one.

    Args:
        link: To the server.
        message: What the server said when it opened the session.
    """

    def __init__(self, link: Connection, message: pb.Session) -> None:
        self._link = link
        self.session_id, self.model, self.ttl_s = message.session_id, message.model, message.ttl_s
        self.epoch = message.epoch
        self.last_reply: PlanReply | None = None

    def plan(
        self,
        observation: Observation,
        *,
        executed: FloatArray | None = None,
        horizon: int | None = None,
        iterations: int | None = None,
        samples: int | None = None,
        soft_time_s: float | None = None,
        warm_start: bool = True,
        deterministic: bool = False,
        want_predicted: bool = False,
        timeout_s: float | None = None,
    ) -> Plan:
        """Plans from what the robot senses now, starting at the session's last plan. `last_reply` then has more.

        Args:
            observation: With the frame of now, or the frames after each executed step; `seq` never goes down.
            executed: [S, A] actions since the last plan. None: the first of that plan, as many as `seq` went up.
            horizon: Actions in the plan; the model's default if None, as for the next two.
            iterations: Planner iterations.
            samples: Candidates an iteration.
            soft_time_s: Seconds after which the best plan so far is returned.
            warm_start: Start the search from the last one's result.
            deterministic: The same bytes whoever shares the batch.
            want_predicted: Return the predicted latents.
            timeout_s: Deadline of the call; the client's if None.

        Raises:
            SessionExpiredError: The server has forgotten the session; make a new one.
        """
        message = pb.PlanRequest(
            session_id=self.session_id,
            session_epoch=self.epoch,
            observation=encode_observation(observation, self._link.config.image_format),
            horizon=horizon,
            budget=pb.Budget(soft_time_s=soft_time_s, iterations=iterations, samples=samples),
            ignore_warm_start=not warm_start,
            deterministic=deterministic,
            want_predicted=want_predicted,
        )
        if executed is not None:
            message.executed_actions.CopyFrom(encode_tensor(executed, "executed_actions"))
        self.last_reply = send_plan(self._link, message, timeout_s)
        return self.last_reply.plan

    def reset(self, goal: Goal | None = None, seed: int | None = None) -> None:
        """Starts a new episode: warm start and context are forgotten; goal and seed stay where they are None."""
        message = pb.ResetSessionRequest(session_id=self.session_id, seed=seed)
        if goal is not None:
            message.goal.CopyFrom(encode_goal(goal, self._link.config.image_format))
        self.epoch = self._link.call(self._link.planning.ResetSession, message).epoch

    def update_goal(self, goal: Goal) -> None:
        """Changes the goal; warm start and context stay."""
        image_format = self._link.config.image_format
        message = pb.UpdateGoalRequest(session_id=self.session_id, goal=encode_goal(goal, image_format))
        self._link.call(self._link.planning.UpdateGoal, message)

    def close(self) -> None:
        """Lets the server forget the session."""
        self._link.call(self._link.planning.CloseSession, pb.CloseSessionRequest(session_id=self.session_id))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is None:
            self.close()  # after an error the server forgets it in its own time
