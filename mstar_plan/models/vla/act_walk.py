"""The walk `act`: see once, then denoise a chunk of actions step by step, then bring it into the robot's units.

    act(what is observed, noise, prior, steps) -> actions, clipped
      see -> prefix
      schedule -> clock, conditions
      loop flow x steps: denoise
      finish -> actions, clipped

One node is one Euler step, so that the loop costs next to nothing beside a hand-written one. Times, conditions and the
prefix are worked out before the loop; each row has its own, so requests join wherever they are in their loops and
however many steps they take.

Shapes: B rows, S actions of a chunk, A padded action width, R the robot's action width, N steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from mstar_plan.errors import ComponentError
from mstar_plan.models.vla.flow import euler_step, euler_times
from mstar_plan.models.vla.rtc import ChunkPrior
from mstar_plan.walks.batch import Batch
from mstar_plan.walks.component import Component, Outputs
from mstar_plan.walks.graph import Graph
from mstar_plan.walks.step import Loop, Node, Sequential
from mstar_plan.walks.walk import Walk

MOST_STEPS = 100  # that a request may ask for


class FlowPolicy(Protocol):
    """A policy that turns noise into a chunk of actions by a flow.

    Attributes:
        chunk: S.
        action_width: A.
        steps: Euler steps where a request does not say.
        observes: Names of what `see` reads, each a tensor that leads with B.
    """

    @property
    def chunk(self) -> int: ...
    @property
    def action_width(self) -> int: ...
    @property
    def steps(self) -> int: ...
    @property
    def observes(self) -> tuple[str, ...]: ...

    def see(self, observed: Mapping[str, Tensor]) -> Any:
        """What the flow needs of the observation: a Joinable of B rows."""
        ...

    def conditions(self, steps: int) -> Tensor:
        """What the time means at each of N steps, the same for every request: [N, ...]."""
        ...

    def velocity(self, x_BSA: Tensor, condition_B: Tensor, prefix: Any, clean_BS: Tensor | None = None) -> Tensor:
        """The flow's velocity [B, S, A] at x; `condition_B` has a row of `conditions` for each row."""
        ...


class See:
    """Component: what is observed -> prefix."""

    outputs = ("prefix",)

    def __init__(self, policy: FlowPolicy) -> None:
        self.policy, self.inputs = policy, policy.observes

    def __call__(self, batch: Batch) -> Outputs:
        """Computes the prefix."""
        return {"prefix": self.policy.see(batch.values)}

    def to(self, device: torch.device) -> None:
        """Moves the policy."""
        if isinstance(self.policy, torch.nn.Module):
            self.policy.to(device)


class Schedule:
    """Component: noise [B, S, A], steps (a static) -> clock [B, N, 2] of time and step length, conditions [B, N, ...].

    Conditions are views of one table: nothing is computed for a number of steps that was asked for before.
    """

    inputs, outputs = ("noise", "steps"), ("clock", "conditions")

    def __init__(self, policy: FlowPolicy) -> None:
        self.policy = policy

    def __call__(self, batch: Batch) -> Outputs:
        """Works the steps out."""
        steps, noise = batch["steps"], batch["noise"]
        times_N = euler_times(steps)
        clock_N2 = torch.stack([times_N, torch.full_like(times_N, -1.0 / steps)], 1).to(noise.device)
        table = self.policy.conditions(steps)
        rows = len(noise)
        return {"clock": clock_N2.expand(rows, -1, -1), "conditions": table.expand(rows, *table.shape)}


class Denoise:
    """Component: one Euler step of the flow: x, now [B, 2], condition, prefix, prior -> x."""

    inputs, outputs = ("x", "now", "condition", "prefix", "prior"), ("x",)

    def __init__(self, policy: FlowPolicy) -> None:
        self.policy = policy

    def __call__(self, batch: Batch) -> Outputs:
        """Goes one step on."""
        values = batch.values
        return {
            "x": flow_step(
                self.policy,
                values["x"],
                values["now"],
                values["condition"],
                prefix=values["prefix"],
                prior=values["prior"],
            )
        }


def flow_step(  # noqa: PLR0917 - the ports of the component, in their order
    policy: FlowPolicy, x_BSA: Tensor, now_B2: Tensor, condition_B: Tensor, prefix: Any, prior: ChunkPrior
) -> Tensor:
    """One Euler step from time `now_B2[:, 0]` by `now_B2[:, 1]`, with what is known of the chunk."""
    x_BSA = prior.hold(x_BSA)
    v_BSA = policy.velocity(x_BSA, condition_B, prefix, prior.clean)
    if prior.guides:
        v_BSA = prior.guide(x_BSA, v_BSA, now_B2[:, 0])
    return prior.hold(euler_step(x_BSA, v_BSA, now_B2[:, 1, None, None]))


class Finish:
    """Component: x -> actions [B, S, R] in the robot's units, and how many numbers were clipped, [B].

    Args:
        unnormalise: Maps [B, S, R] in the policy's units to the robot's.
        low: [R] smallest allowed value.
        high: [R] largest.
    """

    inputs, outputs = ("x",), ("actions", "clipped")

    def __init__(self, unnormalise: Callable[[Tensor], Tensor], low: Tensor, high: Tensor) -> None:
        self.unnormalise, self.low, self.high = unnormalise, low, high

    def __call__(self, batch: Batch) -> Outputs:
        """Scales and limits.

        Raises:
            ComponentError: An action is not finite.
        """
        width = len(self.low)
        wanted = self.unnormalise(batch["x"][..., :width])
        if not bool(wanted.isfinite().all()):
            raise ComponentError("the policy gave actions that are NaN or infinite; check its weights and statistics")
        low, high = self.low.to(wanted.device), self.high.to(wanted.device)
        actions = wanted.clamp(low, high)
        return {"actions": actions, "clipped": (actions != wanted).flatten(1).sum(1)}


def act_walk(observes: tuple[str, ...]) -> Walk:
    """The walk `act` of a policy that observes these."""
    flow = Loop(
        Node("denoise", Denoise.inputs, Denoise.outputs),
        times="steps",
        carry={"x": "noise"},
        scan={"clock": "now", "conditions": "condition"},
        limit=MOST_STEPS,
        name="flow",
    )
    step = Sequential(
        (
            Node("see", observes, See.outputs),
            Node("schedule", Schedule.inputs, Schedule.outputs),
            flow,
            Node("finish", Finish.inputs, Finish.outputs),
        )
    )
    return Walk("act", step, (*observes, "noise", "prior", "steps"), Finish.outputs)


def act_graph(name: str, policy: FlowPolicy, finish: Finish) -> Graph:
    """A policy as a graph with the walk `act`."""
    components: dict[str, Component] = {
        "see": See(policy),
        "schedule": Schedule(policy),
        "denoise": Denoise(policy),
        "finish": finish,
    }
    return Graph(name, components, {"act": act_walk(policy.observes)})


def sample_chunk(
    policy: FlowPolicy, prefix: Any, noise_BSA: Tensor, steps: int, prior: ChunkPrior | None = None
) -> Tensor:
    """The walk's loop written by hand, for comparison: [B, S, A] in the policy's units."""
    rows = len(noise_BSA)
    prior = prior or ChunkPrior(rows)
    times_N, table = euler_times(steps).to(noise_BSA.device), policy.conditions(steps)
    dt_N = torch.full_like(times_N, -1.0 / steps)
    x_BSA = noise_BSA
    for k in range(steps):
        now_B2 = torch.stack([times_N[k], dt_N[k]]).expand(rows, -1)
        x_BSA = flow_step(policy, x_BSA, now_B2, table[k].expand(rows, *table.shape[1:]), prefix=prefix, prior=prior)
    return x_BSA
