"""The receding-horizon controller in process: plan, execute the first actions, look again, plan anew."""

from __future__ import annotations

from collections import deque

from mstar_plan.errors import ConfigError, InvalidInputError
from mstar_plan.rollout.controller_config import ControllerConfig
from mstar_plan.rollout.episode import Episode
from mstar_plan.rollout.solver import PlanSolver
from mstar_plan.types import FloatArray, Goal, Observation, Plan


class PlanningController:
    """A `Controller` that plans in process.

    Args:
        solver: Answers the plan requests.
        config: How plans become actions.
    """

    def __init__(self, solver: PlanSolver, config: ControllerConfig | None = None) -> None:
        self.solver, self.config = solver, config or ControllerConfig()
        self.last_plan: Plan | None = None
        self._episode: Episode | None = None
        self._queue: deque[FloatArray] = deque()
        horizon = self.config.horizon or solver.defaults.horizon
        if self.config.execute > horizon:
            raise ConfigError(f"controller.execute {self.config.execute} is over horizon {horizon}", field="execute")

    def reset(self, goal: Goal, seed: int = 0) -> None:
        """Starts a new episode towards `goal`, which is encoded once.

        Raises:
            InvalidInputError: The goal does not fit the model.
        """
        if goal.frame is not None:
            goal = Goal(latent=self.solver.encode(goal.frame))
        self._episode = Episode(self.solver.spec, goal, seed)
        self._queue.clear()
        self.last_plan = None

    def act(self, observation: Observation) -> FloatArray:
        """The [A] action to take now, finite and inside the limits.

        Raises:
            InvalidInputError: `reset` was not called, or the observation does not fit the model.
            ComponentError: The model gave nothing finite.
        """
        if self._episode is None:
            raise InvalidInputError("act was called before reset; give the controller a goal first", field="goal")
        if not self._queue:
            self._plan(observation, self._episode)
        elif self._at_model_step() and self.solver.spec.context_frames > 1:
            self._episode.saw(self.solver.encode(observation.frames[-1]))
        action = self._queue.popleft()
        if self._at_model_step():  # the last control step of this action
            self._episode.executed(action)
        return action.copy()

    def _at_model_step(self) -> bool:
        return len(self._queue) % self.config.action_repeat == 0

    def _plan(self, observation: Observation, episode: Episode) -> None:
        config = self.config
        request = episode.request(observation).but(
            soft_time_s=config.soft_time_s,
            horizon=config.horizon,
            iterations=config.iterations,
            samples=config.samples,
            deterministic=config.deterministic,
            want_predicted=config.want_predicted,
        )
        plan = self.solver.solve(request if config.warm_start else request.but(warm_start=None))
        episode.planned(plan)
        self.last_plan = plan
        for action in plan.actions[: config.execute]:
            self._queue.extend([action] * config.action_repeat)
