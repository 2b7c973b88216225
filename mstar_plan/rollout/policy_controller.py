"""A policy in closed loop: ask for a chunk, execute its first actions, look again.

Where a world model judges, what is left of the last chunk is a candidate, too (`ControllerConfig.warm_start`).
"""

from __future__ import annotations

from collections import deque

from mstar_plan.errors import ConfigError, InvalidInputError
from mstar_plan.rollout.controller_config import ControllerConfig
from mstar_plan.rollout.policy_solver import PolicySolver
from mstar_plan.rollout.seeding import plan_seed
from mstar_plan.rollout.warm_start import shift
from mstar_plan.types import FloatArray, Goal, Observation, Plan, PlanRequest, WarmStart


class PolicyController:
    """A `Controller` that asks a policy, alone or with a world model's judgement.

    Args:
        solver: Makes the chunks.
        config: How chunks become actions; of its sizes, those of a refining search are taken.
    """

    def __init__(self, solver: PolicySolver, config: ControllerConfig | None = None) -> None:
        self.solver, self.config = solver, config or ControllerConfig()
        self.last_plan: Plan | None = None
        self._goal: Goal | None = None
        self._seed = self._plans = 0
        self._executed: FloatArray | None = None
        self._warm: WarmStart | None = None
        self._queue: deque[FloatArray] = deque()
        horizon = self.config.horizon or solver.defaults.horizon
        if self.config.execute > horizon:
            raise ConfigError(f"controller.execute {self.config.execute} is over horizon {horizon}", field="execute")
        if solver.spec.context_frames > 1:
            what = f"model {solver.spec.name!r} sees {solver.spec.context_frames} frames"
            raise ConfigError(f"{what}; a policy is judged by models that see one", field="model")

    def reset(self, goal: Goal, seed: int = 0) -> None:
        """Starts a new episode towards `goal`.

        Raises:
            InvalidInputError: The goal is no picture.
        """
        if goal.frame is None:
            raise InvalidInputError("a policy goes to what a picture shows; give goal.frame", field="goal")
        self._goal, self._seed, self._plans = goal, seed, 0
        self._executed, self._warm, self.last_plan = None, None, None
        self._queue.clear()

    def act(self, observation: Observation) -> FloatArray:
        """The [A] action to take now, finite and inside the limits.

        Raises:
            InvalidInputError: `reset` was not called, or the observation does not fit the models.
            ComponentError: A model gave nothing finite.
        """
        if self._goal is None:
            raise InvalidInputError("act was called before reset; give the controller a goal first", field="goal")
        if not self._queue:
            self._ask(observation, self._goal)
        action = self._queue.popleft()
        if len(self._queue) % self.config.action_repeat == 0:  # the last control step of this action
            self._executed = action
            self._warm = None if self._warm is None else shift(self._warm, 1, self.solver.spec.action)
        return action.copy()

    def _ask(self, observation: Observation, goal: Goal) -> None:
        config = self.config
        request = PlanRequest(
            observation=Observation(observation.frames[-1:], observation.state, observation.seq),
            goal=goal,
            seed=plan_seed(self._seed, self._plans),
            soft_time_s=config.soft_time_s,
            horizon=config.horizon,
            iterations=config.iterations,
            samples=config.samples,
            warm_start=self._warm if config.warm_start else None,
            deterministic=config.deterministic,
            context_actions=None if self._executed is None else self._executed[None],
        )
        self.last_plan = self.solver.solve(request)
        self._warm, self._plans = self.last_plan.warm_start, self._plans + 1
        for action in self.last_plan.actions[: config.execute]:
            self._queue.extend([action] * config.action_repeat)
