"""The walks of a flow policy: see once, then denoise K proposals side by side, then bring them into the robot's units.

    propose(frames, goal_frames, seed, proposals, steps) -> actions [B, K, S, A]
      encode, encode_goal -> look -> context
      draw -> noise; schedule -> clock
      loop flow x steps: denoise
      finish -> actions

`act` is the same with one proposal, and gives it as [B, S, A]. Noise is a function of a request's seed and the number
of the proposal alone: so the first proposals are the same whatever K is and whoever shares the batch.

Shapes: B requests, K proposals, S actions of a chunk, A action, N steps, L latent of one picture, W width.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from mstar_plan.errors import ComponentError, InvalidInputError
from mstar_plan.models.flow_policy.policy import FlowPolicy
from mstar_plan.models.vla.act_walk import MOST_STEPS
from mstar_plan.models.vla.flow import euler_step, euler_times
from mstar_plan.types import ActionSpec
from mstar_plan.walks.batch import Batch
from mstar_plan.walks.component import Component, Outputs
from mstar_plan.walks.graph import Graph
from mstar_plan.walks.step import Loop, Node, Parallel, Sequential, Step
from mstar_plan.walks.walk import Walk

MOST_PROPOSALS = 1024  # that one request may ask for
STREAM = 0x666C6F77  # tells the policy's noise apart from that of a search with the same seed
OBSERVES = ("frames", "goal_frames")
PROPOSE = (*OBSERVES, "seed", "proposals", "steps")
ACT = (*OBSERVES, "seed", "steps")


class EncodePicture:
    """Component: frames [B, 1, H_px, W_px, 3] uint8 -> latent [B, L]."""

    inputs, outputs = ("frames",), ("latent",)

    def __init__(self, policy: FlowPolicy) -> None:
        self.policy = policy

    def __call__(self, batch: Batch) -> Outputs:
        """Encodes the newest of each row's pictures."""
        return {"latent": self.policy.encode(batch["frames"][:, -1])}


class Look:
    """Component: latents of now and goal -> context [B, W]."""

    inputs, outputs = ("latent", "goal_latent"), ("context",)

    def __init__(self, policy: FlowPolicy) -> None:
        self.policy = policy

    def __call__(self, batch: Batch) -> Outputs:
        """Computes what all steps of the flow need."""
        return {"context": self.policy.net.see(batch["latent"], batch["goal_latent"])}


class Draw:
    """Component: seed [B] -> noise [B, K, S, A] of `proposals` (a static), or of one, where the port is not there."""

    outputs = ("noise",)

    def __init__(self, policy: FlowPolicy, *, one: bool = False) -> None:
        self.shape = (policy.config.chunk, policy.config.actions)
        self.inputs = ("seed",) if one else ("seed", "proposals")

    def __call__(self, batch: Batch) -> Outputs:
        """Draws it.

        Raises:
            InvalidInputError: The number of proposals is not in 1 to `MOST_PROPOSALS`.
        """
        count = batch.values.get("proposals", 1)
        if not 1 <= count <= MOST_PROPOSALS:
            raise InvalidInputError(f"proposals is {count}; it needs 1 to {MOST_PROPOSALS}", field="proposals")
        return {"noise": draw(batch["seed"], (count, *self.shape))}


class Schedule:
    """Component: seed [B] (for its rows), steps (a static) -> clock [B, N, 2] of time and step length."""

    inputs, outputs = ("seed", "steps"), ("clock",)

    def __call__(self, batch: Batch) -> Outputs:
        """Works the steps out."""
        steps, seed = batch["steps"], batch["seed"]
        times_N = euler_times(steps)
        clock_N2 = torch.stack([times_N, torch.full_like(times_N, -1.0 / steps)], 1).to(seed.device)
        return {"clock": clock_N2.expand(len(seed), -1, -1)}


class Denoise:
    """Component: one Euler step of all proposals: x [B, K, S, A], now [B, 2], context -> x."""

    inputs, outputs = ("x", "now", "context"), ("x",)

    def __init__(self, policy: FlowPolicy) -> None:
        self.policy = policy

    def __call__(self, batch: Batch) -> Outputs:
        """Goes one step on."""
        x, now = batch["x"], batch["now"]
        velocity = self.policy.net.velocity(x, now[:, 0], batch["context"])
        return {"x": euler_step(x, velocity, now[:, 1, None, None, None])}


class Finish:
    """Component: x in [-1, 1] units -> actions [B, K, S, A] in the robot's units, inside its bounds."""

    inputs, outputs = ("x",), ("actions",)

    def __init__(self, action: ActionSpec) -> None:
        self.low, self.high = torch.from_numpy(action.low), torch.from_numpy(action.high)

    def __call__(self, batch: Batch) -> Outputs:
        """Scales and limits.

        Raises:
            ComponentError: An action is not finite.
        """
        x = batch["x"]
        if not bool(x.isfinite().all()):
            raise ComponentError("the policy gave actions that are NaN or infinite; check its weights")
        low, high = self.low.to(x.device), self.high.to(x.device)
        return {"actions": torch.clamp((low + high) / 2 + x * (high - low) / 2, low, high)}


class First:
    """Component: proposed [B, 1, S, A] -> actions [B, S, A]."""

    inputs, outputs = ("proposed",), ("actions",)

    def __call__(self, batch: Batch) -> Outputs:
        """Takes it."""
        return {"actions": batch["proposed"][:, 0]}


def draw(seed_B: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """Standard normal noise [B, K, S, A] on the device of `seed_B` [B] int64, `shape` being (K, S, A).

    Counter-based (Philox, Salmon et al. 2011): a row is the same bytes whoever shares the batch, and its first
    proposals are the same whatever K is.
    """
    rows = []
    for seed in seed_B.tolist():
        generator = np.random.Generator(np.random.Philox(key=np.array([seed, STREAM], dtype=np.uint64)))
        rows.append(torch.from_numpy(generator.standard_normal(shape, dtype=np.float32)))
    return torch.stack(rows).to(seed_B.device)


def act_walk() -> Walk:
    """One chunk [B, S, A]."""
    step = Sequential((_proposing(Node("draw", ("seed",), ("noise",), "draw_one"), "proposed"), _first()))
    return Walk("act", step, ACT, ("actions",))


def propose_walk() -> Walk:
    """K chunks [B, K, S, A]."""
    return Walk(
        "propose", _proposing(Node("draw", ("seed", "proposals"), ("noise",)), "actions"), PROPOSE, ("actions",)
    )


def policy_graph(policy: FlowPolicy, name: str = "") -> Graph:
    """A policy as a graph with the walks `act` and `propose`; the policy's own name if empty."""
    components: dict[str, Component] = {
        "encode": EncodePicture(policy),
        "look": Look(policy),
        "draw": Draw(policy),
        "draw_one": Draw(policy, one=True),
        "schedule": Schedule(),
        "denoise": Denoise(policy),
        "finish": Finish(policy.action),
        "first": First(),
    }
    walks = (act_walk(), propose_walk())
    return Graph(name or policy.name, components, {walk.name: walk for walk in walks})


def _first() -> Node:
    return Node("first", First.inputs, First.outputs)


def _proposing(draw_noise: Node, actions: str) -> Step:
    flow = Loop(
        Node("denoise", Denoise.inputs, Denoise.outputs),
        times="steps",
        carry={"x": "noise"},
        scan={"clock": "now"},
        limit=MOST_STEPS,
        name="flow",
    )
    see = Parallel(
        (
            Node("encode", ("frames",), ("latent",)),
            Node("encode_goal", {"frames": "goal_frames"}, {"latent": "goal_latent"}, component="encode"),
        )
    )
    return Sequential(
        (
            see,
            Node("look", Look.inputs, Look.outputs),
            draw_noise,
            Node("schedule", Schedule.inputs, Schedule.outputs),
            flow,
            Node("finish", ("x",), {"actions": actions}),
        )
    )
