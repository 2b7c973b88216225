"""What comes before a policy's model: pictures of its size, states as bins, and the words of its prompt.

Shapes: B pictures, H and W their height and width in pixels, C channels, D numbers of a state.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional

from mstar_plan.errors import ConfigError, InvalidInputError, LimitExceededError, did_you_mean
from mstar_plan.models.vla.normalise import Normaliser, Rule

__all__ = [
    "Normaliser",
    "PadRule",
    "Rule",
    "discretise_state",
    "pad_last",
    "pi05_prompt",
    "resize_with_pad",
    "task_line",
    "to_signed",
]

PadRule = Literal["pi", "smolvla"]
STATE_BINS = 256
MAX_SIDE = 8192  # pixels; larger pictures are refused before anything is made of them


def resize_with_pad(images_BHWC: Tensor, height: int, width: int, *, rule: PadRule) -> Tensor:
    """Returns pictures of the asked size, their aspect kept, the rest filled with 0; [B, height, width, C], same dtype.

    Rule "pi" (openpi's `resize_with_pad`) puts the picture in the middle and clamps floats to [0, 1]; "smolvla"
    (LeRobot's rule of that policy) puts it right and below, and leaves a picture that has the size as it is. Both are
    bilinear without antialiasing, with half-pixel centres.

    Args:
        images_BHWC: uint8, or floats in [0, 1].
        height: Wanted, in pixels.
        width: Wanted, in pixels.
        rule: Which.

    Raises:
        ConfigError: There is no such rule, or the size is none.
        InvalidInputError: These are no pictures.
        LimitExceededError: A side is over `MAX_SIDE`.
    """
    if rule not in get_args(PadRule):
        raise ConfigError(f"there is no padding rule {rule!r}{did_you_mean(rule, get_args(PadRule))}", field="rule")
    _check_images(images_BHWC, height, width)
    _, have_h, have_w, _ = images_BHWC.shape
    if (have_h, have_w) == (height, width) and (rule == "smolvla" or images_BHWC.dtype == torch.uint8):
        return images_BHWC
    ratio = max(have_w / width, have_h / height)
    new_h, new_w = max(1, int(have_h / ratio)), max(1, int(have_w / ratio))
    images = images_BHWC.permute(0, 3, 1, 2)
    resized = functional.interpolate(
        images.float() if images.dtype == torch.uint8 else images,
        size=(new_h, new_w),
        mode="bilinear",
        align_corners=False,
    )
    if images.dtype == torch.uint8:
        resized = resized.round().clamp(0, 255).to(torch.uint8)
    elif rule == "pi":
        resized = resized.clamp(0.0, 1.0)
    rest_h, rest_w = height - new_h, width - new_w
    left, top = (rest_w // 2, rest_h // 2) if rule == "pi" else (rest_w, rest_h)
    padded = functional.pad(resized, (left, rest_w - left, top, rest_h - top))
    return padded.permute(0, 2, 3, 1)


def _check_images(images: Tensor, height: int, width: int) -> None:
    if images.ndim != 4 or images.shape[-1] not in (1, 3, 4) or 0 in images.shape:
        raise InvalidInputError(f"pictures have shape {list(images.shape)}; send [B, H, W, 3]", field="images")
    if images.dtype != torch.uint8 and not images.is_floating_point():
        raise InvalidInputError(f"pictures are {images.dtype}; send uint8, or floats in [0, 1]", field="images")
    for what, side in (("wanted height", height), ("wanted width", width)):
        if side < 1:
            raise ConfigError(f"{what} is {side}; it needs at least 1 pixel", field="size")
    if max(height, width, *images.shape[1:3]) > MAX_SIDE:
        raise LimitExceededError(
            f"pictures of {list(images.shape[1:3])} for {height} x {width}; at most {MAX_SIDE} pixels a side are taken",
            field="images",
        )


def to_signed(images: Tensor) -> Tensor:
    """Returns pictures, uint8 or floats in [0, 1], as float32 in [-1, 1], padding included."""
    unit = images.to(torch.float32) / 255.0 if images.dtype == torch.uint8 else images.to(torch.float32)
    return unit * 2.0 - 1.0


def pad_last(values: Tensor, width: int) -> Tensor:
    """Returns values [..., D] with zeros behind, [..., width].

    Raises:
        InvalidInputError: D is over the width.
    """
    if values.shape[-1] > width:
        raise InvalidInputError(f"a vector of {values.shape[-1]} numbers is over the model's {width}")
    return functional.pad(values, (0, width - values.shape[-1]))


def discretise_state(state_D: Tensor) -> Tensor:
    """Returns the bin of each normalised number [..., D], int64: 0..255 over [-1, 1], -1 below, 255 above.

    Bins are half open to the right, as those of openpi's `PaligemmaTokenizer`.

    Raises:
        InvalidInputError: A number is NaN or infinite.
    """
    if not bool(state_D.isfinite().all()):
        raise InvalidInputError("the state holds NaN or infinity; send finite numbers", field="state")
    edges = torch.linspace(-1, 1, STATE_BINS + 1, dtype=torch.float64, device=state_D.device)[:-1]
    return torch.bucketize(state_D.double().contiguous(), edges, right=True) - 1


def pi05_prompt(task: str, state_normalised: Tensor) -> str:
    """Returns the prompt of pi0.5: the task in one line, and the normalised state [D] as bins.

    Raises:
        InvalidInputError: The state is not [D], or holds a number that is not finite.
    """
    if state_normalised.ndim != 1:
        raise InvalidInputError(f"the state has shape {list(state_normalised.shape)}; send [D]", field="state")
    words = task.strip().replace("_", " ").replace("\n", " ")
    bins = " ".join(str(each) for each in discretise_state(state_normalised).tolist())
    return f"Task: {words}, State: {bins};\nAction: "


def task_line(task: str) -> str:
    """Returns the prompt of pi0 and SmolVLA: the task, ended by one line break."""
    return task if task.endswith("\n") else f"{task}\n"
