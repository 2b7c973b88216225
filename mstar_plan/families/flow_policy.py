"""Flow policies by name: chunks of actions from a picture of now and a picture of the goal.

Shapes: B rows, S actions of a chunk, A action.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mstar_plan.errors import InvalidInputError, did_you_mean
from mstar_plan.families.abilities import ObservationField, WalkCall
from mstar_plan.families.face import Port, WalkFace
from mstar_plan.families.servable import FamilyConfig, Servable
from mstar_plan.families.world_ports import GREY, integer
from mstar_plan.models.flow_policy.policy import FlowPolicy, load_flow_policy
from mstar_plan.models.flow_policy.walk import OBSERVES, policy_graph
from mstar_plan.types import ActionSpec, FloatArray, check_image

KEYS = ("observation/image", "observation/goal_image")  # of what the walks read as `OBSERVES`
LICENCE = "Apache-2.0"

Value = npt.NDArray[np.generic] | str | float
Values = Mapping[str, Any]


def load_flow_policy_family(name: str, config: FamilyConfig) -> Servable:
    """A flow policy alone: flow_reach or flow_push, or the one of `config.weights`.

    Raises:
        UnavailableError: Its packaged weights, or its world model's, are not installed.
        WeightsError: The weight file is damaged, of another architecture, or belongs to another encoder.
    """
    policy = load_flow_policy(name, weights=config.weights, device=config.device)
    ability = FlowPolicyActions(policy, torch.device(config.device))
    return Servable(
        name=name,
        graph=policy_graph(policy, name),
        faces={"act": act_face(policy), "propose": propose_face(policy)},
        description=policy.description,
        licence=LICENCE,
        source=source_of(config),
        threads=1,
        action=ability,
    )


def source_of(config: FamilyConfig) -> str:
    """Where the policy's weights come from, in words."""
    return str(config.weights) if config.weights is not None else "trained by this project: mstar-plan train"


class FlowPolicyActions:
    """See `ActionAbility`: what one proposal of a policy is.

    Args:
        policy: The model.
        device: Where it is.
    """

    def __init__(self, policy: FlowPolicy, device: torch.device) -> None:
        self.fields = fields_of(policy.config.image_size)
        self.action: ActionSpec = policy.action
        self.chunk: int = policy.config.chunk
        self._policy, self._device = policy, device

    def act(
        self,
        observation: Mapping[str, Value],
        *,
        seed: int | None = None,
        previous: FloatArray | None = None,
        delay: int = 0,
    ) -> WalkCall:
        """See `ActionAbility.act`; chunks of these policies do not go on from the last one.

        Raises:
            InvalidInputError: A key is missing, unknown or of another shape, or `previous` or `delay` is given.
        """
        need_fresh(previous, delay)
        seen = look(observation, self._policy.config.image_size)
        values = {**{name: frames.to(self._device) for name, frames in seen.items()}, "seed": seed_of(seed)}
        return WalkCall("act", {**values, "steps": self._policy.config.steps})


def fields_of(side: int) -> tuple[ObservationField, ...]:
    """The two pictures of `side` pixels that a policy sees."""
    told = ("RGB, what the camera sees now", "RGB, what it shall see")
    return tuple(
        ObservationField(key, "image", (side, side, 3), description=text) for key, text in zip(KEYS, told, strict=True)
    )


def look(observation: Mapping[str, Value], side: int) -> dict[str, Tensor]:
    """The walks' `OBSERVES`, [1, 1, H_px, W_px, 3] uint8 each, of an observation by its keys.

    Raises:
        InvalidInputError: A key is missing or unknown, or a picture is none of uint8 RGB of `side` pixels.
    """
    for key in observation:
        if key not in KEYS:
            raise InvalidInputError(f"observation has unknown key {key!r}{did_you_mean(key, KEYS)}", field=key)
    found: dict[str, Tensor] = {}
    for name, key in zip(OBSERVES, KEYS, strict=True):
        if key not in observation:
            raise InvalidInputError(f"observation lacks {key!r}; it has {sorted(observation)}", field=key)
        image = check_image(observation[key], key, ndim=3)
        if image.shape != (side, side, 3):
            what = f"{key} is {image.shape[0]}x{image.shape[1]} pixels; the policy sees {side}x{side}"
            raise InvalidInputError(f"{what}: crop and resize the camera image before sending it", field=key)
        found[name] = torch.tensor(image[None, None])
    return found


def need_fresh(previous: FloatArray | None, delay: int) -> None:
    """Refuses to go on from an old chunk.

    Raises:
        InvalidInputError: It is asked for.
    """
    if previous is not None or delay:
        name = "previous" if previous is not None else "delay"
        what = f"{name} is given, but this policy begins every chunk anew"
        raise InvalidInputError(f"{what}; leave previous and delay out", field=name)


def seed_of(seed: int | None, rows: int = 1) -> Tensor:
    """The seed of every row, [B] int64; None draws one.

    Raises:
        InvalidInputError: It is no whole 0 <= seed < 2**63.
    """
    seed = secrets.randbelow(2**63) if seed is None else seed
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**63:
        raise InvalidInputError(f"seed is {seed!r}; it needs a whole 0 <= seed < 2**63", field="seed")
    return torch.full((rows,), int(seed), dtype=torch.int64)


def picture_ports(side: int) -> dict[str, Port]:
    """The walks' `OBSERVES`."""
    told = ("what the camera sees now", "what it shall see")
    grey = torch.full((1, 1, side, side, 3), GREY, dtype=torch.uint8)
    shape = (None, 1, side, side, 3)
    return {
        name: Port(dtype="uint8", shape=shape, description=text, unit="RGB", example=grey)
        for name, text in zip(OBSERVES, told, strict=True)
    }


def chunk_port(action: ActionSpec, chunk: int, axes: tuple[int | None, ...], description: str) -> Port:
    """Chunks of actions [B, *axes, S, A]."""
    names = ", ".join(f"{name} [{unit}]" for name, unit in zip(action.names, action.units, strict=True))
    return Port(shape=(None, *axes, chunk, action.size), description=f"{description}: {names}")


def same_rows(values: Values, *names: str) -> int:
    """B, the rows that all of these tensors have.

    Raises:
        InvalidInputError: They differ.
    """
    rows = {name: len(values[name]) for name in names}
    if len(set(rows.values())) != 1:
        raise InvalidInputError(f"rows differ: {rows}; send as many of each", field=names[0])
    return rows[names[0]]


def act_face(policy: FlowPolicy) -> WalkFace:
    """One chunk of actions for any wire."""
    actions = chunk_port(policy.action, policy.config.chunk, (), "what to do")
    inputs = {**picture_ports(policy.config.image_size), **_flow_ports(policy)}
    return WalkFace("act", inputs, {"actions": actions}, description="A chunk of actions.", prepare=with_seeds)


def propose_face(policy: FlowPolicy) -> WalkFace:
    """Several chunks for any wire."""
    actions = chunk_port(policy.action, policy.config.chunk, (None,), "what might be done")
    inputs = {
        **picture_ports(policy.config.image_size),
        "proposals": integer(8, "how many chunks"),
        **_flow_ports(policy),
    }
    text = "Several chunks of actions, each from noise of its own."
    return WalkFace("propose", inputs, {"actions": actions}, description=text, prepare=with_seeds)


def with_seeds(values: Values) -> Values:
    """The walk's inputs, with a seed for each row.

    Raises:
        InvalidInputError: Rows differ, or the seed is refused.
    """
    return {**values, "seed": seed_of(values["seed"], same_rows(values, *OBSERVES))}


def _flow_ports(policy: FlowPolicy) -> dict[str, Port]:
    steps = integer(policy.config.steps, "Euler steps of the flow")
    return {"seed": integer(0, "of the noise; every row's"), "steps": steps}
