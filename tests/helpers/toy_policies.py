"""Policies for the toy world: one that throws darts, and a small flow net that sees with the toy's own eyes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mstar_plan.models.flow_policy.network import FlowNet, FlowPolicyConfig
from mstar_plan.models.flow_policy.policy import FlowPolicy
from mstar_plan.models.toy import DT_S, ToyWorld, render
from mstar_plan.rollout.rerank_walk import Proposer
from mstar_plan.types import ActionSpec
from mstar_plan.walks.component import FunctionComponent
from mstar_plan.walks.graph import Graph
from mstar_plan.walks.step import Node
from mstar_plan.walks.walk import Walk

NOWHERE: Mapping[str, Any] = {
    **dict.fromkeys(("context_latents", "context_actions", "state", "last_action", "warm")),
    "held": 0,
}


def throw(seed: Tensor, darts: int, size: int = 2, chunk: int = 6) -> Tensor:
    """[B, K, S, A]: directions that are held; the first ones are the same whatever K is. Some leave the bounds."""
    rows = []
    for each in seed.tolist():
        draw = np.random.default_rng(each).uniform(-1.4, 1.4, (64, 1, size))[:darts]
        rows.append(torch.tensor(draw, dtype=torch.float32).expand(-1, chunk, -1))
    return torch.stack(rows)


def dart_thrower(action: ActionSpec | None = None, chunk: int = 6, bad: tuple[int, ...] = ()) -> Proposer:
    """A policy with port names of its own that sees nothing; its proposals `bad` are NaN."""

    def policy(seed: Tensor, darts: int) -> Tensor:
        thrown = throw(seed, darts, spec.size, chunk).clone()
        thrown[:, [each for each in bad if each < darts]] = torch.nan
        return thrown

    spec = action or ToyWorld().spec.action
    walk = Walk("throw", Node("throw", ("seed", "darts"), ("thrown",)), ("seed", "darts"), ("thrown",))
    graph = Graph("darts", {"throw": FunctionComponent(policy, ("seed", "darts"), ("thrown",))}, {"throw": walk})
    return Proposer(graph, spec, chunk, walk="throw", proposals="darts", actions="thrown")


def flow_policy(seed: int = 0, chunk: int = 6, name: str = "flow_toy") -> FlowPolicy:
    """A flow policy that was never trained, with weights that do something."""
    torch.manual_seed(seed)
    world = ToyWorld()
    net = FlowNet(FlowPolicyConfig("toy", latent=2, chunk=chunk, width=32, blocks=2, steps=4))
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    return FlowPolicy(name, net, world, world.spec.action).eval().requires_grad_(False)


def pictures(start: tuple[float, float], goal: tuple[float, float]) -> dict[str, Tensor]:
    """What the walks read: one row of pictures."""
    made = {"frames": start, "goal_frames": goal}
    return {name: torch.from_numpy(render(np.array(place)))[None, None] for name, place in made.items()}


def true_costs(start: tuple[float, float], goal: tuple[float, float], actions: Tensor) -> Tensor:
    """[K]: mean distance to the goal along the chunks [K, H, 2], by the toy's own law."""
    places = torch.tensor(start) + DT_S * actions.cumsum(1)
    return (places - torch.tensor(goal)).square().sum(2).add(1e-4).sqrt().mean(1)
