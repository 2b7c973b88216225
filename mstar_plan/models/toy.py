"""A world that is known exactly: a point mass seen as a bright blob, with the best plan in closed form.

Shapes: B requests, K candidates, C context frames (1), H steps; N = 1 latent token, D = 2: the position (x, y).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from mstar_plan.errors import InvalidInputError
from mstar_plan.models.world_model import ModelSpec
from mstar_plan.types import ActionSpec, FloatArray, ImageArray, finite_array

IMAGE_SIZE = 64  # px
DT_S = 0.1
BLOB_SD_PX = 1.5
PX_PER_UNIT = 24.0  # positions in [-1, 1] leave 7 px of margin, so that the blob is never cut
CENTRE_PX = (IMAGE_SIZE - 1) / 2


def render(position: npt.ArrayLike) -> ImageArray:
    """Draws the point as a Gaussian blob on black: smooth at any sub-pixel place, x to the right and y up.

    Args:
        position: [2] x and y in [-1, 1].

    Returns:
        [64, 64, 3] uint8 RGB.

    Raises:
        InvalidInputError: Not two finite numbers in [-1, 1].
    """
    place = finite_array(position, "position", ndim=1)
    if place.shape != (2,) or np.abs(place).max() > 1.0:
        raise InvalidInputError(f"position is {place.tolist()}; it needs x and y in [-1, 1]", field="position")
    pixels = np.arange(IMAGE_SIZE)
    column, row = CENTRE_PX + PX_PER_UNIT * place[0], CENTRE_PX - PX_PER_UNIT * place[1]
    squared = (pixels[None, :] - column) ** 2 + (pixels[:, None] - row) ** 2
    grey = np.rint(255.0 * np.exp(-squared / (2 * BLOB_SD_PX**2))).astype(np.uint8)
    return np.repeat(grey[:, :, None], 3, axis=2)


def best_plan(start: npt.ArrayLike, goal: npt.ArrayLike, horizon: int) -> FloatArray:
    """Returns the plan that is best at every step: full speed towards the goal on each axis, then still.

    Axes are independent and a step covers at most 0.1 on each, so the error left after h steps is at least
    max(0, |error| - 0.1 h) on each axis; this plan attains that on both axes at all h at once. So it minimises every
    cost that grows with the axes' errors: the distance (L1, L2, squared) at the last step, summed or averaged over
    the horizon, or at its nearest. For the sum and the mean it is the only minimiser.

    Args:
        start: [2] position now.
        goal: [2] position to reach.
        horizon: H, at least 1.

    Returns:
        [H, 2] velocities in [-1, 1].

    Raises:
        InvalidInputError: A position is not two finite numbers, or the horizon is under 1.
    """
    here, target = finite_array(start, "start", ndim=1), finite_array(goal, "goal", ndim=1)
    if here.shape != (2,) or target.shape != (2,) or horizon < 1:
        raise InvalidInputError(
            f"start {here.tolist()}, goal {target.tolist()}, horizon {horizon}; needs x and y, and a horizon over 0"
        )
    left = np.abs(target - here)[None, :] - DT_S * np.arange(horizon)[:, None]  # [H, 2] before each step
    speed = np.clip(left / DT_S, 0.0, 1.0)
    return np.asarray(np.sign(target - here) * speed, dtype=np.float32)


class ToyWorld(nn.Module):
    """The known world as a `WorldModel`: latents are positions, actions velocities in units/s; nothing is clamped."""

    def __init__(self, name: str = "toy") -> None:
        super().__init__()
        ones = np.ones(2, np.float32)
        action = ActionSpec(low=-ones, high=ones, dt_s=DT_S, names=("velocity_x", "velocity_y"), units=("1/s", "1/s"))
        self.spec = ModelSpec(
            name=name,
            image_size=(IMAGE_SIZE, IMAGE_SIZE),
            latent_shape=(1, 2),
            action=action,
            description="A point mass with known dynamics and a known best plan, for tests and examples.",
        )
        self.register_buffer("places", torch.arange(IMAGE_SIZE, dtype=torch.float32) - CENTRE_PX, persistent=False)

    def encode(self, frames: Tensor) -> Tensor:
        """Returns the intensity-weighted centroid of frames [B, 64, 64, 3] uint8 as latents [B, 1, 2].

        Raises:
            InvalidInputError: A frame is black, so that it has no centroid.
        """
        places = self.get_buffer("places")
        light = frames.to(places.dtype).mean(dim=-1)  # [B, H_px, W_px]
        total = light.sum(dim=(1, 2))
        if not bool((total > 0).all()):
            raise InvalidInputError("a frame is black, so no point is seen; draw it with toy.render", field="frames")
        x = (light.sum(dim=1) @ places) / total
        y = -(light.sum(dim=2) @ places) / total
        return torch.stack([x, y], dim=-1)[:, None] / PX_PER_UNIT

    def begin(
        self, context: Tensor, actions: Tensor | None, state: Tensor | None, candidates: int, horizon: int
    ) -> tuple[Tensor, Tensor | None, Any]:
        """Starts K rollouts from the newest latent of [B, C, 1, 2]: a view [B, K, 1, 2], no state, no cache."""
        del actions, state, horizon
        return context[:, -1, None].expand(-1, candidates, -1, -1), None, None

    def predict(
        self, latent: Tensor, state: Tensor | None, action: Tensor, cache: Any
    ) -> tuple[Tensor, Tensor | None, Any]:
        """One step: position [B, K, 1, 2] plus velocity [B, K, 2] times 0.1 s; state and cache pass through."""
        return torch.add(latent, action[:, :, None], alpha=DT_S), state, cache

    def embed(self, latent: Tensor) -> Tensor:
        """Maps latents [..., 1, 2] to positions [..., 2]."""
        return latent.flatten(-2)
