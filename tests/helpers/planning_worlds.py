"""Worlds with known answers for the tests of planning: the toy with a wrapped spec, with inertia, or broken."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mstar_plan.models.toy import ToyWorld, render
from mstar_plan.models.world_model import WorldModel
from mstar_plan.rollout.limits import PlanLimits
from mstar_plan.rollout.objective import ObjectiveConfig
from mstar_plan.rollout.plan_walk import plan_graph
from mstar_plan.rollout.planner import PlannerConfig
from mstar_plan.rollout.solver import PlanSolver
from mstar_plan.runtime.runtime import Runtime
from mstar_plan.types import ActionSpec, Goal, Observation, PlanRequest


class Slow(ToyWorld):
    """The toy, rate-limited and with bounds that are not centred on zero."""

    def __init__(self) -> None:
        super().__init__("slow")
        action = ActionSpec(low=[-0.5, -1.0], high=[1.0, 1.0], dt_s=0.1, max_delta=[0.2, 0.5])
        self.spec = replace(self.spec, action=action)


class Glider(ToyWorld):
    """The toy with inertia: half of the last step goes on, which only two frames can show. Counts what it encodes."""

    def __init__(self) -> None:
        super().__init__("glider")
        self.spec = replace(self.spec, context_frames=2)
        self.encoded = 0
        self.seen_actions: Tensor | None = None

    def encode(self, frames: Tensor) -> Tensor:
        self.encoded += len(frames)
        return super().encode(frames)

    def begin(
        self, context: Tensor, actions: Tensor | None, state: Tensor | None, candidates: int, horizon: int
    ) -> tuple[Tensor, Tensor | None, Any]:
        assert context.shape[1] == 2
        self.seen_actions = actions
        latent, _, _ = super().begin(context, actions, state, candidates, horizon)
        step = (context[:, 1] - context[:, 0]).expand(-1, candidates, -1)
        return latent, step, None

    def predict(
        self, latent: Tensor, state: Tensor | None, action: Tensor, cache: Any
    ) -> tuple[Tensor, Tensor | None, Any]:
        assert state is not None
        step = 0.5 * state + 0.1 * action
        return latent + step[:, :, None], step, cache


class Broken(ToyWorld):
    """The toy whose predictions turn NaN: for the candidates from index `first_bad` on."""

    def __init__(self, first_bad: int = 0) -> None:
        super().__init__("broken")
        self.first_bad = first_bad

    def predict(
        self, latent: Tensor, state: Tensor | None, action: Tensor, cache: Any
    ) -> tuple[Tensor, Tensor | None, Any]:
        following, state, cache = super().predict(latent, state, action, cache)
        bad = torch.arange(following.shape[1])[None, :, None, None] >= self.first_bad
        return torch.where(bad, torch.nan, following), state, cache


class Proprioceptive(ToyWorld):
    """The toy that adds a felt offset [2] to where it starts, and needs it."""

    def __init__(self) -> None:
        super().__init__("proprioceptive")
        self.spec = replace(self.spec, state_size=2)

    def begin(
        self, context: Tensor, actions: Tensor | None, state: Tensor | None, candidates: int, horizon: int
    ) -> tuple[Tensor, Tensor | None, Any]:
        assert state is not None
        latent, _, _ = super().begin(context, actions, state, candidates, horizon)
        return latent + state[:, None, None], None, None


@contextmanager
def solver_for(
    model: WorldModel,
    planner: PlannerConfig,
    objective: ObjectiveConfig | None = None,
    limits: PlanLimits | None = None,
) -> Iterator[PlanSolver]:
    """A solver on a runtime of its own."""
    with Runtime(plan_graph(model, planner, objective or ObjectiveConfig())) as runtime:
        footprint = getattr(model, "rollout_bytes", None)
        yield PlanSolver(model.spec, runtime, planner, limits=limits, footprint=footprint)


def request(
    start: tuple[float, float] = (-0.3, 0.2), goal: tuple[float, float] = (0.4, -0.4), seed: int = 0
) -> PlanRequest:
    """From one place to another, both as pictures."""
    return PlanRequest(Observation(render(np.array(start))[None]), Goal(frame=render(np.array(goal))), seed=seed)
