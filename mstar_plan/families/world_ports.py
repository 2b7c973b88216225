"""The ports of world models: what a planning graph's walks take and give, and how what they give is made plain.

Shapes: B rows, T frames, C context frames, N latent tokens, D width, A action, P proprioception.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mstar_plan.errors import ComponentError
from mstar_plan.families.face import REQUIRED, Port
from mstar_plan.models.world_model import ModelSpec
from mstar_plan.rollout.constraints import SearchSpace

GREY = 127  # of pictures that are examples


def pictures(spec: ModelSpec, count: int | None, description: str, example: int = 1) -> Port:
    """Pictures [B, T, H_px, W_px, 3] uint8 of the size that the model sees; `example` of them work."""
    height, width = spec.image_size
    grey = torch.full((1, example, height, width, 3), GREY, dtype=torch.uint8)
    shape = (None, count, height, width, 3)
    return Port(dtype="uint8", shape=shape, description=description, unit="RGB", example=grey)


def latents(spec: ModelSpec, count: int | None, description: str, default: Any = REQUIRED) -> Port:
    """Latents [B, T, N, D] as `encode` gives them."""
    return Port(shape=(None, count, *spec.latent_shape), description=description, default=default)


def actions(spec: ModelSpec, shape: tuple[int | None, ...], description: str, default: Any = REQUIRED) -> Port:
    """Actions [B, *shape, A] in their units; the middle of the bounds works."""
    action = spec.action
    middle = torch.from_numpy((action.low + action.high) / 2).expand(1, *(side or 1 for side in shape), -1)
    return Port(
        shape=(None, *shape, action.size),
        description=f"{description}: {', '.join(action.names)}",
        unit=", ".join(action.units),
        default=default,
        example=middle if default is REQUIRED else None,
    )


def view(spec: ModelSpec) -> dict[str, Port]:
    """What a model sees now; models that see one frame and no proprioception take pictures alone."""
    earlier = spec.context_frames - 1
    ports = {"frames": pictures(spec, None, "what the camera sees, oldest first", spec.context_frames)}
    if earlier:
        ports["context_latents"] = latents(spec, None, "frames before these, encoded", default=None)
        ports["context_actions"] = actions(spec, (earlier,), "executed between the frames")
    if spec.state_size:
        ports["state"] = Port(shape=(None, spec.state_size), description="proprioception now")
    return ports


def goal_port(spec: ModelSpec, goal: str) -> Port:
    """The input "goal_frames" or "goal_latent"."""
    if goal == "goal_frames":
        return pictures(spec, 1, "what the camera shall see")
    return latents(spec, 1, "what the camera shall see, encoded")


def integer(default: int, description: str) -> Port:
    """A whole number that may be left out."""
    return Port("integer", default=default, description=description)


def presenter(spec: ModelSpec) -> Callable[[str, Any], Tensor]:
    """Makes what walks give plain: float32, and means, spreads and elites in the action's units.

    The function raises ComponentError where a plan's cost is not finite.
    """
    space = SearchSpace(spec.action)

    def present(wire: str, value: Tensor) -> Tensor:
        plain = value.float()
        if wire in ("cost", "best_cost") and not bool(plain.isfinite().all()):
            what = f"model {spec.name!r} gave no candidate a finite cost"
            raise ComponentError(f"{what}; check weights and image", details={"cause": "NON_FINITE_COST"})
        if wire == "std":
            return plain * space.to(plain.device).half
        return space.to(plain.device).to_units(plain) if wire in ("mean", "elites") else plain

    return present
