"""Wires policies: a flow policy and a task's world model on one runtime, for controllers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from mstar_plan.build import PlanningConfig, Task, build_model, pick_device, pick_threads, place, with_memory
from mstar_plan.models.flow_policy.policy import load_flow_policy
from mstar_plan.models.flow_policy.walk import policy_graph
from mstar_plan.rollout.policy_solver import Mode, PolicySolver, ProposalConfig
from mstar_plan.rollout.rerank_walk import Proposer, rerank_graph
from mstar_plan.runtime.placement import Placement
from mstar_plan.runtime.runtime import Runtime


@dataclass(frozen=True)
class PolicyConfig(ProposalConfig):
    """Which policy, and how its proposals become a plan.

    Attributes:
        name: Of the packaged policy; empty: that of the task, such as flow_reach.
        weights: File to use in its place.
    """

    name: str = ""
    weights: Path | None = None

    def of(self, task: Task) -> str:
        """The policy's name in a task."""
        return self.name or f"flow_{task.name}"


@contextmanager
def opened_policy(task: Task, config: PlanningConfig, policy: PolicyConfig, mode: Mode) -> Iterator[PolicySolver]:
    """A policy and a task's world model on a runtime of their own, for as long as the context is open.

    Args:
        task: Whose model judges.
        config: How plans are scored, and by what search they are refined.
        policy: Who proposes.
        mode: What is made of the proposals.

    Raises:
        ConfigError: Policy and model do not belong together, or the placement does not fit.
        UnavailableError: Weights or a device are missing.
        WeightsError: A weight file is damaged.
    """
    device = pick_device(config.device)
    model = build_model(task, config)
    made = load_flow_policy(policy.of(task), weights=policy.weights, device=device)
    proposer = Proposer(policy_graph(made), made.action, made.config.chunk)
    graphs = {task.name: rerank_graph(task.name, proposer, model, config.planner, config.objective)}
    threads = config.threads or pick_threads(model.spec)
    torch.set_num_threads(threads)
    placement = Placement.from_config(place(config.placement, config.device, threads), graphs)
    with Runtime(graphs, placement=placement, config=config.runtime) as runtime:
        limits = with_memory(config.limits, config.device)
        yield PolicySolver(model.spec, runtime, proposer, mode, policy, limits, task.name)
