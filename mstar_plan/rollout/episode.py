"""What is remembered between the plans of one episode; the in-process controller and the server's sessions keep one.

Shapes: C context frames, N latent tokens, D width, A action.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from mstar_plan.errors import InvalidInputError
from mstar_plan.models.world_model import ModelSpec
from mstar_plan.rollout.seeding import plan_seed
from mstar_plan.rollout.warm_start import shift
from mstar_plan.types import FloatArray, Goal, Observation, Plan, PlanRequest, WarmStart, finite_array


class Episode:
    """Goal, warm start, context window and noise of one episode. Not thread-safe.

    Between two plans: `request` -> solve -> `planned` -> `executed` for every action that the robot took.

    Args:
        spec: Of the model.
        goal: Where to; encoded by the caller, so that it is encoded once.
        seed: The noise of all searches follows from it.
    """

    def __init__(self, spec: ModelSpec, goal: Goal, seed: int = 0) -> None:
        self.spec, self.goal, self.seed = spec, goal, seed
        self.plans = 0
        self.warm: WarmStart | None = None
        self._centre = ((spec.action.low + spec.action.high) / 2).astype(np.float32)
        self._latents: deque[FloatArray] = deque(maxlen=spec.context_frames - 1)
        self._actions: deque[FloatArray] = deque(maxlen=max(1, spec.context_frames - 1))

    def request(self, observation: Observation) -> PlanRequest:
        """The request for the next plan: frames that were encoded before come as latents.

        At the start of an episode a model of several frames sees the first one repeated, with actions at the centre of
        their bounds in between: a robot that has kept still. Of an observation with several frames the newest is used;
        the window of earlier ones is kept here.
        """
        newest = observation.frames[-1:]
        earlier = self.spec.context_frames - 1
        if earlier and not self._latents:
            newest = np.repeat(newest, earlier + 1, axis=0)
            self._actions.extend([self._centre] * earlier)
        return PlanRequest(
            observation=Observation(newest, observation.state, observation.seq),
            goal=self.goal,
            seed=plan_seed(self.seed, self.plans),
            warm_start=self.warm,
            context_latents=np.stack(self._latents) if self._latents else None,
            context_actions=np.stack(self._actions) if self._actions else None,
        )

    def planned(self, plan: Plan) -> None:
        """Takes what a plan leaves for the next one."""
        self.plans += 1
        self.warm = plan.warm_start
        if plan.latent is not None:
            self.saw(plan.latent)

    def saw(self, latent: FloatArray) -> None:
        """Notes the latent [N, D] of a frame, once a model step; the first one fills the window."""
        fill = self._latents.maxlen if not self._latents else 1
        self._latents.extend([latent] * (fill or 0))

    def executed(self, action: FloatArray) -> None:
        """Notes an action [A] that the robot took (one model step): the warm start moves on by it.

        Raises:
            InvalidInputError: It has another size, or is not finite.
        """
        action = finite_array(action, "executed_action", ndim=1)
        if action.shape != self._centre.shape:
            raise InvalidInputError(
                f"executed_action has shape {action.shape}; model {self.spec.name!r} needs {self._centre.shape}",
                field="executed_action",
            )
        self._actions.append(action)
        if self.warm is not None:
            self.warm = shift(self.warm, 1, self.spec.action)
