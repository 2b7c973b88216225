"""What must hold between a robot and a world model, checked when the model is loaded and served with it.

Mismatched preprocessing is the failure that users of world models report most; here it has one place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mstar_plan.errors import ConfigError

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class ModelContract:
    """How pixels, frames, states and actions are to be given.

    Attributes:
        pixel_mean: Subtracted from RGB in 0..1.
        pixel_std: Divided by, after that.
        frame_copies: How often a frame is repeated to fill one tubelet.
        normalize_latents: Whether tokens go through a layer norm without weights, encoded and predicted ones.
        frame_dt_s: Seconds between frames, and so the time that one action takes.
        frame_order: Order of context frames.
        state: "pose": xyz (m), extrinsic xyz Euler angles (rad), gripper closedness, in the robot's base frame,
            integrated along the rollout. "none": the model sees pixels and actions alone, its state tokens are zero.
        action_frame: Frame of reference of the actions.
        gripper_sign: What a positive gripper action does; empty without a gripper.
    """

    pixel_mean: tuple[float, float, float] = IMAGENET_MEAN
    pixel_std: tuple[float, float, float] = IMAGENET_STD
    frame_copies: int = 2
    normalize_latents: bool = True
    frame_dt_s: float = 0.25
    frame_order: Literal["oldest_first"] = "oldest_first"
    state: Literal["pose", "none"] = "pose"
    action_frame: str = "robot base"
    gripper_sign: str = "closes"

    def __post_init__(self) -> None:
        for name in ("pixel_mean", "pixel_std"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if self.state not in ("pose", "none"):
            raise ConfigError(f"contract.state is {self.state!r}; use pose or none", field="state")
        if not self.frame_dt_s > 0 or self.frame_copies < 1 or min(self.pixel_std) <= 0:
            raise ConfigError("contract needs frame_dt_s > 0, frame_copies >= 1 and pixel_std > 0", field="contract")
