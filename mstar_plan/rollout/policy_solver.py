"""PolicySolver: a PlanRequest goes in, a Plan comes out; a policy makes it, alone or with a world model's judgement."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from mstar_plan.errors import ComponentError, ConfigError
from mstar_plan.models.world_model import ModelSpec
from mstar_plan.rollout.constraints import SearchSpace, worst_violation
from mstar_plan.rollout.limits import PlanDefaults, PlanLimits, effort
from mstar_plan.rollout.nodes import inside
from mstar_plan.rollout.plan_result import plan_of, row, timing_of
from mstar_plan.rollout.plan_values import batch_of_one, context_values, goal_values
from mstar_plan.rollout.rerank_walk import POLICY, Proposer, horizon_of
from mstar_plan.runtime.request import WalkResult
from mstar_plan.runtime.runtime import Runtime
from mstar_plan.types import FloatArray, Plan, PlanRequest, PlanStatus, WarmStart

Mode = Literal["policy", "rerank", "refine"]
MODES: tuple[Mode, ...] = ("policy", "rerank", "refine")


@dataclass(frozen=True)
class ProposalConfig:
    """How a policy's proposals become a plan.

    Attributes:
        proposals: K.
        steps: Steps of the policy's flow.
        horizon: H, actions of a chunk that the world model judges; 0: all that it can look ahead.
        iterations: Of the search that refines.
        samples: Its candidates.
    """

    proposals: int = 16
    steps: int = 10
    horizon: int = 0
    iterations: int = 2
    samples: int = 32

    def __post_init__(self) -> None:
        for name, least in (("proposals", 1), ("steps", 1), ("horizon", 0), ("iterations", 1), ("samples", 1)):
            value = getattr(self, name)
            if value < least:
                raise ConfigError(f"proposals.{name} is {value}; it needs at least {least}", field=name)


@dataclass(frozen=True, eq=False)
class PolicySolver:
    """Plans with a policy. Thread-safe; requests of many threads share batches.

    Attributes:
        spec: Of the world model.
        runtime: Has the `rerank_graph`; whoever made it closes it.
        proposer: The policy that the graph was made with.
        mode: "policy" takes its first proposal, "rerank" the best, "refine" searches from there.
        config: How many proposals, and how long a search.
        limits: What a request may ask for.
        graph: Name of the graph; may be None where the runtime has one.
        extra: Further inputs of the policy's walk.
    """

    spec: ModelSpec
    runtime: Runtime
    proposer: Proposer
    mode: Mode = "rerank"
    config: ProposalConfig = field(default_factory=ProposalConfig)
    limits: PlanLimits = field(default_factory=PlanLimits)
    graph: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ConfigError(f"mode is {self.mode!r}; use one of {', '.join(MODES)}", field="mode")

    @property
    def defaults(self) -> PlanDefaults:
        """H, iterations and K where a request does not say."""
        horizon = horizon_of(self.proposer, self.spec, self.config.horizon or None)
        samples = self.config.samples if self.mode == "refine" else self.config.proposals
        return PlanDefaults(horizon, self.config.iterations if self.mode == "refine" else 1, samples)

    def solve(self, request: PlanRequest, *, deadline_s: float | None = None) -> Plan:
        """Plans, and waits for it. `samples` of a request are those of the refining search.

        Args:
            request: What is asked for; its goal is a picture.
            deadline_s: Seconds from now after which no plan is worth anything.

        Raises:
            InvalidInputError: The request does not fit the models.
            LimitExceededError: It asks for too much.
            ComponentError: A model gave nothing finite.
        """
        sizes = effort(request, self.defaults, self.limits, self.spec)
        walk = {"policy": f"{POLICY}.{self.proposer.walk}"}.get(self.mode, self.mode)
        pending = self.runtime.submit(
            walk,
            self._values(request, sizes, walk),
            graph=self.graph,
            deadline_s=deadline_s,
            soft_time_s=request.soft_time_s,
            session=request.session,
            deterministic=request.deterministic,
            here=True,
        )
        try:
            result = pending.result()
        finally:
            pending.cancel()  # if the caller was interrupted: nobody else can want it
        return plan_of(result, request, self.spec, sizes) if self.mode == "refine" else self._plan(result, request)

    def _values(self, request: PlanRequest, sizes: PlanDefaults, walk: str) -> dict[str, Any]:
        """The inputs of a walk, by the names that it has for them."""
        known: dict[str, Any] = {
            **context_values(request, self.spec),
            **goal_values(request.goal, self.spec),
            "seed": torch.tensor([request.seed]),
            "proposals": 1 if self.mode == "policy" else self.config.proposals,
            "steps": self.config.steps,
            "horizon": sizes.horizon,
            "iterations": sizes.iterations,
            "samples": sizes.samples,
            "last_action": self._last_action(request),
            "warm": _warm(request),
            "held": 0,
            **self.extra,
        }
        names = self.proposer.names if self.mode == "policy" else {}
        graph = self.runtime.graphs[self.graph] if self.graph is not None else next(iter(self.runtime.graphs.values()))
        return {name: known[names.get(name, name)] for name in graph.walk(walk).inputs}

    def _plan(self, result: WalkResult, request: PlanRequest) -> Plan:
        """The chosen chunk as a plan; that of a policy alone was not scored."""
        outputs, alone = result.outputs, self.mode == "policy"
        actions = self._first(outputs[self.proposer.actions], request) if alone else row(outputs["actions"])
        cost = math.nan if alone else outputs["cost"].item()
        if not alone and not math.isfinite(cost):
            raise ComponentError(
                f"model {self.spec.name!r} gave none of {self.config.proposals} proposals a finite cost; check weights "
                "and image",
                details={"cause": "NON_FINITE_COST"},
            )
        _check(actions, request, self.spec)
        return Plan(
            actions=actions,
            cost=cost,
            dt_s=self.spec.action.dt_s,
            status=PlanStatus.COMPLETE,
            iterations=0 if alone else 1,
            samples=1 if alone else self.config.proposals,
            cost_history=() if alone else (cost,),
            warm_start=None if alone else WarmStart(actions, actions[None][:0]),
            seed=request.seed,
            observation_seq=request.observation.seq,
            timing=timing_of(result.timing),
        )

    def _first(self, proposed: Tensor, request: PlanRequest) -> FloatArray:
        """The first of the chunks [1, K, S, A], brought inside the limits as a judged one is."""
        space, last = SearchSpace(self.spec.action).to(proposed.device), self._last_action(request)
        _, actions = inside(space, space.from_units(proposed), None if last is None else last.to(proposed.device))
        return row(actions[:, 0])

    def _last_action(self, request: PlanRequest) -> Tensor | None:
        """The action [1, A] that was executed just before, where a rate limit asks for it."""
        last = request.context_actions
        return None if last is None or self.spec.action.max_delta is None else batch_of_one(np.asarray(last)[-1])


def _warm(request: PlanRequest) -> Tensor | None:
    """What the last plan left, [1, 1 + E, H, A]: candidates beside the policy's."""
    warm = request.warm_start
    return None if warm is None else batch_of_one(np.concatenate([warm.mean[None], warm.elites]))


def _check(actions: FloatArray, request: PlanRequest, spec: ModelSpec) -> None:
    """Refuses what must not be executed.

    Raises:
        ComponentError: The actions are not finite or not inside the limits.
    """
    last = request.context_actions[-1] if request.context_actions is not None else None
    wrong = worst_violation(actions, spec.action, last)
    if wrong:
        raise ComponentError(f"the policy's actions break the limits: {wrong}", details={"cause": "LIMIT_VIOLATED"})
