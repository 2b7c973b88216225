"""What SmolVLA sees of an observation: padded pictures with those that are missing, and a normalised, padded state.

Shapes: I cameras, Y and X pixels of a picture, D numbers of a state, Z padded state width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from mstar_plan.errors import InvalidInputError, WeightsError
from mstar_plan.models.vla.normalise import Normaliser
from mstar_plan.models.vla.preprocess import MAX_SIDE, pad_last, resize_with_pad, to_signed

USUAL_SIZE = (512, 512)


def picture_size(config: Mapping[str, Any]) -> tuple[int, int] | None:
    """Height and width in pixels that pictures are padded to by a policy's config; None: they stay as they are.

    The config has them the other way round, as (width, height).

    Raises:
        WeightsError: They are no two whole numbers.
    """
    size = config.get("resize_imgs_with_padding", USUAL_SIZE)
    if size is None:
        return None
    if len(size) != 2 or not all(type(side) is int and 1 <= side <= MAX_SIDE for side in size):
        what = f"resize_imgs_with_padding is {size!r}"
        raise WeightsError(f"{what}; it needs [width, height] in pixels", field="resize_imgs_with_padding")
    return size[1], size[0]


def smolvla_images(
    pictures: Sequence[Tensor | None], size: tuple[int, int] | None, normaliser: Normaliser | None = None
) -> tuple[Tensor, Tensor]:
    """Returns the pictures of one observation, [1, I, 3, Y, X] in [-1, 1], and which are there, bool [1, I].

    Args:
        pictures: [Y_px, X_px, 3] of each camera, uint8 or floats in [0, 1]; None where a camera is missing.
        size: Height and width to pad to; see `picture_size`.
        normaliser: Of pictures, for policies that have one: it comes before the padding.

    Raises:
        InvalidInputError: All are missing, one is no picture, or they differ in size and are not padded.
    """
    made = [None if picture is None else _image(picture, size, normaliser) for picture in pictures]
    there = [image for image in made if image is not None]
    if not there:
        raise InvalidInputError("an observation has no picture; send at least one", field="images")
    if len({image.shape for image in there}) > 1:
        shapes = [list(image.shape[1:]) for image in there]
        raise InvalidInputError(f"pictures have sizes {shapes}, and this policy does not resize; send equal ones")
    missing = torch.full_like(there[0], -1.0)
    images = torch.stack([missing if image is None else image for image in made])
    return images[None], torch.tensor([[image is not None for image in made]], device=images.device)


def _image(picture: Tensor, size: tuple[int, int] | None, normaliser: Normaliser | None) -> Tensor:
    if picture.ndim != 3 or picture.shape[-1] != 3:
        raise InvalidInputError(f"a picture has shape {list(picture.shape)}; send [Y, X, 3]", field="images")
    unit = picture / 255.0 if picture.dtype == torch.uint8 else picture
    unit = unit.to(torch.float32)
    if normaliser is not None:
        unit = normaliser.normalise(unit.permute(2, 0, 1)).permute(1, 2, 0)
    padded = unit[None] if size is None else resize_with_pad(unit[None], *size, rule="smolvla")
    return to_signed(padded)[0].permute(2, 0, 1)


def smolvla_state(state_D: Tensor, normaliser: Normaliser, width: int) -> Tensor:
    """Returns a state [D] on the model's scale, padded with zeros: [1, Z].

    Raises:
        InvalidInputError: It holds NaN or infinity, or is not as long as the policy's.
    """
    if state_D.ndim != 1 or not bool(state_D.isfinite().all()):
        raise InvalidInputError(f"state has shape {list(state_D.shape)}; send finite numbers [D]", field="state")
    return pad_last(normaliser.normalise(state_D.to(torch.float32)), width)[None]
