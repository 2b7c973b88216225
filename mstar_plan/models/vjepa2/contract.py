"""What must hold between a robot and a world model, checked when the model is loaded and served with it.

Mismatched preprocessing is the failure that users of world models report most; here it has one place.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from mstar_plan.errors import ConfigError, did_you_mean
from mstar_plan.types import POSE_UNITS, ActionSpec

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
SAME = 1e-6  # relative, of two numbers that one is written shorter than the other

Claim = str | bool | float | Sequence[str] | Sequence[float]


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

    def terms(self, image_size: tuple[int, int], action: ActionSpec, context_frames: int = 1) -> dict[str, str]:
        """All that must hold, as text: what is served with the model, and what `check_terms` compares.

        Args:
            image_size: (H_px, W_px) of the pictures.
            action: The actions.
            context_frames: C, frames that a rollout starts from.
        """
        own = {name: _text(value) for name, value in asdict(self).items()}
        return own | {
            "image_size": _text(image_size),
            "frame_hz": _text(1 / self.frame_dt_s),
            "context_frames": _text(context_frames),
            "state_units": _text(POSE_UNITS if self.state == "pose" else ()),
            "action_names": _text(action.names),
            "action_units": _text(action.units),
            "action_low": _text(action.low.tolist()),
            "action_high": _text(action.high.tolist()),
            "action_dt_s": _text(action.dt_s),
        }

    def check(
        self, claims: Mapping[str, Claim], image_size: tuple[int, int], action: ActionSpec, context_frames: int = 1
    ) -> None:
        """Compares with what a robot or a configuration says of itself; see `check_terms`."""
        check_terms(self.terms(image_size, action, context_frames), claims)

    def check_inside(self, tubelet_size: int | None, action: ActionSpec) -> None:
        """Refuses a model whose parts do not agree with its contract.

        Args:
            tubelet_size: Frames of a tubelet; None for an encoder of still pictures.
            action: The actions.

        Raises:
            ConfigError: Frames do not fill a tubelet, actions last another time than a frame, or a pose does not fit.
        """
        wrong = []
        if tubelet_size is not None and self.frame_copies != tubelet_size:
            wrong.append(f"frame_copies is {self.frame_copies}, a tubelet has {tubelet_size} frames")
        if not math.isclose(self.frame_dt_s, action.dt_s, rel_tol=SAME):
            wrong.append(f"frame_dt_s is {self.frame_dt_s:g}, an action lasts {action.dt_s:g} s")
        if self.state == "pose" and action.size != len(POSE_UNITS):
            wrong.append(f"state is pose, which takes {len(POSE_UNITS)} action values, not {action.size}")
        if wrong:
            raise ConfigError(f"the contract does not fit the model: {'; '.join(wrong)}", field="contract")


def check_terms(terms: Mapping[str, str], claims: Mapping[str, Claim]) -> None:
    """Compares a model's terms, as served, with what a robot or a configuration says of itself.

    Args:
        terms: Of the model: `ModelContract.terms`, or the contract of a served model's description.
        claims: Those that are known, under the same names; numbers, texts or sequences of them.

    Raises:
        ConfigError: A claim differs, each of them named; or a name is none of the terms'.
    """
    wrong = []
    for name, claim in claims.items():
        if name not in terms:
            raise ConfigError(f"the contract has no term {name!r}{did_you_mean(name, terms)}", field=name)
        said = _text(claim)
        if not _same(said, terms[name]):
            wrong.append(f"{name} is {said or 'none'}, the model needs {terms[name] or 'none'}")
    if wrong:
        raise ConfigError(
            f"robot and model do not agree on {len(wrong)} of {len(claims)} terms: {'; '.join(wrong)}; "
            "change the robot's side or take another model",
            field=wrong[0].partition(" ")[0],
        )


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return f"{value:.7g}"
    if isinstance(value, str):
        return value
    assert isinstance(value, Sequence)
    return ", ".join(_text(each) for each in value)


def _same(one: str, other: str) -> bool:
    ours, theirs = ([part.strip().casefold() for part in text.split(",")] for text in (one, other))
    return len(ours) == len(theirs) and all(a == b or _close(a, b) for a, b in zip(ours, theirs, strict=True))


def _close(one: str, other: str) -> bool:
    try:
        return math.isclose(float(one), float(other), rel_tol=SAME, abs_tol=SAME)
    except ValueError:
        return False
