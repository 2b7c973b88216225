"""FlowActions: a flow policy as the ability to act, and as the face of its walk.

Shapes: B observations, S actions of a chunk, A padded action width, R the robot's action width.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mstar_plan.errors import InvalidInputError
from mstar_plan.families.abilities import ObservationField, WalkCall
from mstar_plan.families.face import Port, WalkFace
from mstar_plan.families.vla_observation import MAX_PROMPT, Eyes, Sight, Value
from mstar_plan.models.vla.act_walk import MOST_STEPS, FlowPolicy
from mstar_plan.models.vla.normalise import Normaliser
from mstar_plan.models.vla.rtc import ChunkingConfig, ChunkPrior, make_prior
from mstar_plan.types import ActionSpec, FloatArray, finite_array


@dataclass(eq=False)
class FlowActions:
    """See `ActionAbility`. The walk `act` has one more output: "clipped" [B], how many numbers left the limits.

    Attributes:
        policy: The model.
        eyes: How it looks at observations.
        action: What comes out.
        normaliser: Of the actions.
        chunking: How a chunk goes on from the last one.
        device: Where the policy is.
        fields: What it sees.
        chunk: Actions of one answer.
    """

    policy: FlowPolicy
    eyes: Eyes
    action: ActionSpec
    normaliser: Normaliser
    chunking: ChunkingConfig = field(default_factory=ChunkingConfig)
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    fields: tuple[ObservationField, ...] = field(init=False)
    chunk: int = field(init=False)

    def __post_init__(self) -> None:
        self.fields, self.chunk = self.eyes.fields, self.policy.chunk

    def act(
        self,
        observation: Mapping[str, Value],
        *,
        seed: int | None = None,
        previous: FloatArray | None = None,
        delay: int = 0,
    ) -> WalkCall:
        """See `ActionAbility.act`.

        Raises:
            InvalidInputError: A key is missing, unknown or of another shape, or `previous` and `delay` do not fit.
            LimitExceededError: A picture or the prompt is too large.
        """
        return self.call([self.eyes.look(observation)], seed=seed, previous=previous, delay=delay)

    def call(
        self,
        sights: Sequence[Sight],
        *,
        seed: int | None = None,
        steps: int | None = None,
        previous: FloatArray | None = None,
        delay: int = 0,
    ) -> WalkCall:
        """The call of B observations: see `act`; `steps` Euler steps in the place of the policy's own."""
        rows = len(sights)
        values: dict[str, Any] = {name: tensor.to(self.device) for name, tensor in self.eyes.tensors(sights).items()}
        shape = (rows, self.policy.chunk, self.policy.action_width)
        values["noise"] = noise_of(seed, shape).to(self.device)
        values["steps"] = self.policy.steps if steps is None else steps
        values["prior"] = self._prior(rows, previous, delay)
        return WalkCall("act", values)

    def _prior(self, rows: int, previous: FloatArray | None, delay: int) -> ChunkPrior:
        if previous is None:
            if delay:
                raise InvalidInputError(
                    f"delay is {delay}, but there are no previous actions; send them", field="delay"
                )
            return ChunkPrior(rows)
        array = finite_array(previous, "previous", ndim=2)
        if array.shape[1] != self.action.size:
            what = f"previous has actions of {array.shape[1]} numbers; this policy's have {self.action.size}"
            raise InvalidInputError(what, field="previous")
        scaled = self.normaliser.normalise(torch.from_numpy(array.copy()))
        padded = torch.zeros(rows, len(array), self.policy.action_width)
        padded[..., : self.action.size] = scaled
        prior = make_prior(self.chunking, self.policy.chunk, padded, delay)
        return ChunkPrior(rows) if prior is None else prior.to(self.device)

    def face(self) -> WalkFace:
        """The walk `act` for any wire: B observations of equal pictures and one prompt."""
        cameras, size = len(self.eyes.cameras), len(self.eyes.state_names)
        image_text = f"RGB pictures of {', '.join(self.eyes.cameras)}"
        mask_text = "which cameras are there; left out: all"
        inputs = {
            "images": Port(dtype="uint8", shape=(None, cameras, None, None, 3), description=image_text),
            "image_mask": Port(
                dtype="bool",
                shape=(None, cameras),
                description=mask_text,
                default=None,
                example=torch.ones(1, cameras, dtype=torch.bool),
            ),
            "state": Port(shape=(None, size), description="proprioception: " + ", ".join(self.eyes.state_names)),
            "prompt": Port("text", description="what to do", example="pick up the cup", most=MAX_PROMPT),
            "seed": Port("integer", description="of the noise", default=0),
            "steps": Port("integer", description=f"Euler steps, 1 to {MOST_STEPS}", default=self.policy.steps),
        }
        names = ", ".join(f"{n} [{u}]" for n, u in zip(self.action.names, self.action.units, strict=True))
        outputs = {
            "actions": Port(shape=(None, self.chunk, self.action.size), description=f"a chunk of actions: {names}"),
            "clipped": Port(dtype="int64", shape=(None,), description="numbers that left the limits and were clipped"),
        }
        return WalkFace("act", inputs, outputs, description="A chunk of actions.", prepare=self._prepare)

    def _prepare(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        images, state, mask = values["images"], values["state"], values["image_mask"]
        if len(state) != len(images) or (mask is not None and len(mask) != len(images)):
            raise InvalidInputError("images, image_mask and state differ in their leading B; send as many rows of each")
        rows = [
            self.eyes.look(
                {
                    **{
                        name: picture.numpy(force=True)
                        for i, (name, picture) in enumerate(zip(self.eyes.cameras, pictures, strict=True))
                        if mask is None or bool(mask[row, i])
                    },
                    "state": state[row].numpy(force=True),
                    "prompt": values["prompt"],
                }
            )
            for row, pictures in enumerate(images)
        ]
        return self.call(rows, seed=values["seed"], steps=values["steps"]).values


def noise_of(seed: int | None, shape: Sequence[int]) -> Tensor:
    """Standard normal noise that follows from the seed alone, whatever the machine's device; None draws a seed.

    Raises:
        InvalidInputError: The seed is no whole 0 <= seed < 2**63.
    """
    seed = secrets.randbelow(2**63) if seed is None else seed
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**63:
        raise InvalidInputError(f"seed is {seed!r}; it needs a whole 0 <= seed < 2**63", field="seed")
    return torch.randn(tuple(shape), generator=torch.Generator().manual_seed(int(seed)))
