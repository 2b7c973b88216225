"""The receding-horizon controller over gRPC: same interface and same plans as the one in process. Needs no torch."""

from __future__ import annotations

import logging
from collections import deque
from typing import Protocol

import numpy as np

from mstar_plan.errors import ConfigError, InvalidInputError, NotFoundError
from mstar_plan.rollout.controller_config import ControllerConfig
from mstar_plan.serving.messages import ModelInfo
from mstar_plan.serving.remote_session import PlanReply, PlanSession
from mstar_plan.types import FloatArray, Goal, ImageArray, Observation, Plan

log = logging.getLogger(__name__)


class OpenSession(Protocol):
    """Opens a session; `PlanClient.create_session` does."""

    def __call__(self, *, model: str, goal: Goal, seed: int) -> PlanSession:
        """Opens one of a model, towards a goal."""
        ...


class RemoteController:
    """A `Controller` that plans in a session of a server. `PlanClient.controller` makes one.

    A session that the server has forgotten (it expired, or the server was restarted) is made anew, at the price of its
    warm start; the log says so. Every other error is raised: what to do without a plan is the robot's to decide.

    Args:
        info: The model.
        config: How plans become actions.
        open_session: Opens a session.
    """

    def __init__(self, info: ModelInfo, config: ControllerConfig, open_session: OpenSession) -> None:
        if config.execute > (config.horizon or info.horizon):
            what = f"controller.execute {config.execute} is over horizon {config.horizon or info.horizon}"
            raise ConfigError(what, field="execute")
        self.info, self.config = info, config
        self.last_plan: Plan | None = None
        self._open = open_session
        self._session: PlanSession | None = None
        self._goal: Goal | None = None
        self._seed = 0
        self._queue: deque[FloatArray] = deque()
        self._taken: list[FloatArray] = []  # executed since the last plan, one a model step
        self._frames: list[ImageArray] = []  # seen since the last plan, for models that see several

    def reset(self, goal: Goal, seed: int = 0) -> None:
        """Starts a new episode towards `goal`.

        Raises:
            InvalidInputError: The goal does not fit the model.
        """
        self._goal, self._seed = goal, seed
        self.last_plan = None
        self._forget()
        if self._session is not None:
            try:
                self._session.reset(goal, seed)
                return
            except NotFoundError as error:
                self._lost(error)
        self._session = self._open(model=self.info.name, goal=goal, seed=seed)

    def act(self, observation: Observation) -> FloatArray:
        """The [A] action to take now, inside the limits.

        Raises:
            InvalidInputError: `reset` was not called, or the observation does not fit the model.
            MStarError: There is no plan; the message says why.
        """
        if not self._queue:
            self._plan(observation)
        elif self._at_model_step() and self.info.context_frames > 1:
            self._frames.append(observation.frames[-1])
        action = self._queue.popleft()
        if self._at_model_step():  # the last control step of this action
            self._taken.append(action)
        return action.copy()

    def close(self) -> None:
        """Lets the server forget the session, if there is one."""
        if self._session is not None:
            self._session.close()
            self._session = None

    @property
    def last_reply(self) -> PlanReply | None:
        """What the server said about the last plan; None before the first one of a session."""
        return None if self._session is None else self._session.last_reply

    def _at_model_step(self) -> bool:
        return len(self._queue) % self.config.action_repeat == 0

    def _plan(self, observation: Observation) -> None:
        if self._session is None or self._goal is None:
            raise InvalidInputError("act was called before reset; give the controller a goal first", field="goal")
        try:
            plan = self._ask(self._session, observation)
        except NotFoundError as error:
            self._lost(error)
            self._forget()
            self._session = self._open(model=self.info.name, goal=self._goal, seed=self._seed)
            plan = self._ask(self._session, observation)
        self._forget()
        self.last_plan = plan
        for action in plan.actions[: self.config.execute]:
            self._queue.extend([action] * self.config.action_repeat)

    def _ask(self, session: PlanSession, observation: Observation) -> Plan:
        config = self.config
        frames = np.stack([*self._frames, observation.frames[-1]])
        return session.plan(
            Observation(frames, observation.state, observation.seq),
            executed=np.stack(self._taken) if self._taken else None,
            horizon=config.horizon,
            iterations=config.iterations,
            samples=config.samples,
            soft_time_s=config.soft_time_s,
            warm_start=config.warm_start,
            deterministic=config.deterministic,
            want_predicted=config.want_predicted,
        )

    def _forget(self) -> None:
        self._queue.clear()
        self._taken.clear()
        self._frames.clear()

    def _lost(self, error: NotFoundError) -> None:
        """Says that the session is made anew; what else was not found is not for us to cure."""
        if error.field != "session_id":
            raise error
        log.warning("%s; planning goes on in a new session", error)
