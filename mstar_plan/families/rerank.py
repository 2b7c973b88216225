"""A flow policy whose proposals a world model judges, by name: reach_rerank and push_rerank.

Shapes: B rows, K proposals, S actions of a chunk, H actions that are judged, A action.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mstar_plan.errors import InvalidInputError, LimitExceededError, NotFoundError, did_you_mean
from mstar_plan.families.abilities import WalkCall
from mstar_plan.families.face import Port, WalkFace
from mstar_plan.families.flow_policy import (
    LICENCE,
    chunk_port,
    fields_of,
    look,
    picture_ports,
    same_rows,
    seed_of,
    source_of,
)
from mstar_plan.families.servable import FamilyConfig, Servable
from mstar_plan.families.world_ports import actions, integer, latents, presenter
from mstar_plan.models.flow_policy.policy import FlowPolicy, load_flow_policy
from mstar_plan.models.flow_policy.walk import OBSERVES, policy_graph
from mstar_plan.models.registry import load_model
from mstar_plan.models.world_model import ModelSpec
from mstar_plan.rollout.cem import CEMConfig
from mstar_plan.rollout.limits import PlanLimits
from mstar_plan.rollout.objective import ObjectiveConfig
from mstar_plan.rollout.policy_solver import ProposalConfig
from mstar_plan.rollout.rerank_walk import Proposer, horizon_of, rerank_graph
from mstar_plan.types import ActionSpec, FloatArray, finite_array

SUFFIX = "_rerank"

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Tuning:
    """How a task is planned; the same as in its file of `conf/task/`.

    Attributes:
        planner: Whose search refines.
        objective: What a chunk costs.
    """

    planner: CEMConfig = field(default_factory=CEMConfig)
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)


TUNINGS: Mapping[str, Tuning] = {
    "reach": Tuning(objective=ObjectiveConfig(eps=0.001, minimum=1.0, mean=0.3)),
    "push": Tuning(CEMConfig(horizon=20, carry=8, std=0.8), ObjectiveConfig(eps=0.001, minimum=1.0, mean=0.05)),
}


def load_rerank(name: str, config: FamilyConfig) -> Servable:
    """A task's flow policy and world model as one family: "reach_rerank" or "push_rerank".

    `config.weights` are the policy's.

    Raises:
        NotFoundError: The name belongs to no task.
        UnavailableError: Packaged weights are not installed.
        WeightsError: A weight file is damaged, or policy and world model do not belong together.
    """
    task = name.removesuffix(SUFFIX)
    if task not in TUNINGS or task == name:
        known = [f"{each}{SUFFIX}" for each in TUNINGS]
        raise NotFoundError(f"there is no family {name!r}{did_you_mean(name, known)}", field="model")
    policy = load_flow_policy(f"flow_{task}", weights=config.weights, device=config.device)
    model, tuning = load_model(task, device=config.device), TUNINGS[task]
    proposer = Proposer(policy_graph(policy), policy.action, policy.config.chunk)
    graph = rerank_graph(name, proposer, model, tuning.planner, tuning.objective)
    ability = RerankActions(policy, proposer, model.spec, torch.device(config.device))
    faces = _Faces(ability, tuning.planner, PlanLimits())
    return Servable(
        name=name,
        graph=graph,
        faces={"rerank": faces.rerank(), "refine": faces.refine()},
        description=f"{policy.description} The best of several by the world model {model.spec.name!r}.",
        licence=LICENCE,
        source=source_of(config),
        threads=model.spec.threads,
        action=ability,
    )


class RerankActions:
    """See `ActionAbility`: the best of K proposals, by a world model.

    Args:
        policy: Proposes.
        proposer: The same, as the graph has it.
        spec: Of the world model.
        device: Where both are.
        config: How many proposals.
    """

    def __init__(
        self,
        policy: FlowPolicy,
        proposer: Proposer,
        spec: ModelSpec,
        device: torch.device,
        config: ProposalConfig | None = None,
    ) -> None:
        self.config, self.policy, self.spec = config or ProposalConfig(), policy, spec
        self.fields = fields_of(policy.config.image_size)
        self.action: ActionSpec = spec.action
        self.chunk: int = proposer.chunk
        self.horizon = horizon_of(proposer, spec, self.config.horizon or None)
        self._device = device

    def act(
        self,
        observation: Mapping[str, npt.NDArray[np.generic] | str | float],
        *,
        seed: int | None = None,
        previous: FloatArray | None = None,
        delay: int = 0,
    ) -> WalkCall:
        """See `ActionAbility.act`; outputs "cost" [1], "choice" [1] and more beside "actions".

        To go on with `previous` is one more candidate, and every candidate begins with its first `delay` actions.

        Raises:
            InvalidInputError: A key is missing, unknown or of another shape, or `previous` and `delay` do not fit.
        """
        warm = self._previous(previous, delay)
        seen = look(observation, self.policy.config.image_size)
        values = {name: frames.to(self._device) for name, frames in seen.items()}
        own = {"seed": seed_of(seed), "proposals": self.config.proposals, "steps": self.config.steps}
        old = {"warm": warm, "held": delay}
        return WalkCall("rerank", self.whole({**values, **own, **old, "horizon": self.horizon}))

    def _previous(self, previous: FloatArray | None, delay: int) -> Tensor | None:
        """The old chunk as a candidate [1, 1, n, A]; no more of it than a chunk has."""
        if previous is None:
            if delay:
                what = f"delay is {delay}, but there are no previous actions"
                raise InvalidInputError(f"{what}; send them", field="delay")
            return None
        array = finite_array(previous, "previous", ndim=2)
        if array.shape[1] != self.action.size or not 0 <= delay <= min(len(array), self.chunk):
            what = f"previous has shape {array.shape} and delay is {delay}"
            cure = f"send [n, {self.action.size}] and a delay of at most n"
            raise InvalidInputError(f"{what}; {cure}", field="previous")
        kept = array[None, None, : self.chunk].copy()
        return torch.from_numpy(kept).to(self._device) if len(array) else None

    def whole(self, values: Values) -> dict[str, Any]:
        """A walk's inputs, with what these models do not need."""
        absent = dict.fromkeys(("context_latents", "context_actions", "state", "last_action", "warm"))
        return {**absent, "held": 0, **values}


@dataclass(frozen=True, eq=False)
class _Faces:
    ability: RerankActions
    planner: CEMConfig
    limits: PlanLimits

    def rerank(self) -> WalkFace:
        """The best of K proposals."""
        chunk = chunk_port(self.ability.action, self.ability.chunk, (), "what to do")
        cost = Port(shape=(None,), description="what it costs")
        return WalkFace(
            "rerank",
            self._inputs(),
            {"actions": chunk, "cost": cost, **self._judged()},
            description="A policy proposes, a world model chooses.",
            prepare=self._prepare,
            present=self._present,
        )

    def refine(self) -> WalkFace:
        """A search that starts from K proposals."""
        spec, config = self.ability.spec, self.ability.config
        more = {
            "iterations": integer(config.iterations, "of the search, at most"),
            "samples": integer(config.samples, "candidates of the search"),
        }
        found = {
            "plan": actions(spec, (None,), "what to do"),
            "cost": Port(shape=(None,), description="what it costs"),
            "cost_history": Port(shape=(None, None), description="the best of each iteration"),
            "mean": actions(spec, (None,), "where the search ended"),
            "std": actions(spec, (None,), "and how widely it was spread"),
            "elites": actions(spec, (None, None), "the best candidates, best first"),
            "latents": latents(spec, None, "of the frames"),
            "goal_latent": latents(spec, 1, "of the goal"),
            "proposal_cost": Port(shape=(None,), description="what the best proposal costs"),
        }
        return WalkFace(
            "refine",
            {**self._inputs(), **more},
            {**found, **self._judged()},
            {"best_cost": Port(shape=(None,), description="of this iteration")},
            description="A policy proposes, and a search in a world model goes on from there.",
            prepare=self._prepare,
            present=self._present,
        )

    def _inputs(self) -> dict[str, Port]:
        config = self.ability.config
        return {
            **picture_ports(self.ability.policy.config.image_size),
            "seed": integer(0, "of the noise; every row's"),
            "proposals": integer(config.proposals, "chunks that the policy proposes"),
            "steps": integer(config.steps, "Euler steps of its flow"),
            "horizon": integer(self.ability.horizon, "actions of a chunk that are judged"),
            "warm": actions(self.ability.spec, (None, None), "chunks from before, shifted to now", default=None),
        }

    def _judged(self) -> dict[str, Port]:
        return {
            "proposal_costs": Port(shape=(None, None), description="what each proposal costs"),
            "choice": Port(dtype="int64", shape=(None,), description="number of the best one"),
            "proposed": chunk_port(self.ability.action, self.ability.chunk, (None,), "what the policy proposes"),
        }

    def _prepare(self, values: Values) -> Values:
        rows = same_rows(values, *OBSERVES)
        most = {
            "proposals": self.limits.max_samples // rows,
            "horizon": self.ability.horizon,
            "iterations": self.limits.max_iterations,
            "samples": self.limits.max_samples // rows,
        }
        fewest = {"samples": self.planner.fewest_samples}
        for name, limit in most.items():
            value, least = values.get(name, limit), fewest.get(name, 1)
            if value < least:
                raise InvalidInputError(f"{name} is {value}; it needs at least {least}", field=name)
            if value > limit:
                raise LimitExceededError(f"{name} is {value}; at most {limit} are taken", field=name)
        return self.ability.whole({**values, "seed": seed_of(values["seed"], rows)})

    def _present(self, wire: str, value: Any) -> Any:
        return value if wire == "choice" else presenter(self.ability.spec)(wire, value)
