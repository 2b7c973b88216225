"""The golden vector of a model: what it makes of a fixed picture, kept in its file and compared when it is loaded.

Three lists of 16 numbers: of the pixels behind preprocessing, of the encoded picture, and of the frame predicted after
it. Each is a projection of the whole tensor by fixed signs, so that any change of any part moves all of them; which
list differs first tells what is wrong.

Shapes: N patches of a frame, D width, A action, M numbers of a tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from mstar_plan.errors import WeightsError
from mstar_plan.types import ImageArray

SIZE = 16
SEED = 20250611
# Largest difference from what was recorded, in units of its root mean square: half precision of forty blocks is not
# rounding alone.
TOLERANCE = {"float32": 2e-3, "float16": 2e-2, "bfloat16": 0.15}
CAUSES = {
    "pixels": "the preprocessing (image size, pixel_mean, pixel_std) is not the one that it was saved with",
    "encoded": "the encoder's weights, frame_copies or normalize_latents are not those that it was saved with",
    "predicted": "the predictor's weights are not those that it was saved with",
}


class Testable(Protocol):
    """What is needed of a world model."""

    @property
    def pose_size(self) -> int:
        """A."""
        ...

    @property
    def image_size(self) -> tuple[int, int]:
        """(H_px, W_px)."""
        ...

    @property
    def dtype(self) -> torch.dtype:
        """Of the weights."""
        ...

    def preprocess(self, frames: Tensor) -> Tensor:
        """Frames [1, H_px, W_px, 3] uint8 to pixels."""
        ...

    def encode(self, frames: Tensor) -> Tensor:
        """Frames [1, H_px, W_px, 3] uint8 to tokens [1, N, D]."""
        ...

    def predict_once(self, latent: Tensor, action: Tensor, state: Tensor) -> Tensor:
        """Tokens [1, N, D], action [1, A] and state [1, A] to the next tokens [1, N, D]."""
        ...


@torch.no_grad()
def digest(model: Testable, device: torch.device) -> dict[str, Any]:
    """The golden vector of a model, as JSON can hold it."""
    frames = torch.from_numpy(test_picture(model.image_size))[None].to(device)
    number = torch.arange(1, model.pose_size + 1, dtype=torch.float64, device=device)
    state = (0.4 * torch.sin(number))[None].to(model.dtype)
    action = (0.05 * torch.cos(number))[None].to(model.dtype)
    latent = model.encode(frames)
    parts = {
        "pixels": model.preprocess(frames),
        "encoded": latent,
        "predicted": model.predict_once(latent, action, state),
    }
    values = {name: [round(each, 7) for each in project(tensor)] for name, tensor in parts.items()}
    return {"dtype": str(model.dtype).removeprefix("torch."), **values}


def compare(recorded: Mapping[str, Any], found: Callable[[], Mapping[str, Any]], name: str) -> None:
    """Compares a model with what its file says that it gives.

    Args:
        recorded: From the file; empty: nothing is compared.
        found: Makes the golden vector now.
        name: Of the model.

    Raises:
        WeightsError: It differs beyond the coarser dtype's tolerance, or the record is damaged.
    """
    if not recorded:
        return
    now = found()
    try:
        tolerance = max(TOLERANCE[str(recorded["dtype"])], TOLERANCE[now["dtype"]])
        both = {part: (np.array(recorded[part], np.float64), np.array(now[part], np.float64)) for part in CAUSES}
        apart = {part: float(np.abs(a - b).max() / max(np.sqrt((a * a).mean()), 1e-6)) for part, (a, b) in both.items()}
    except (KeyError, TypeError, ValueError) as error:
        raise WeightsError(
            f"the self-test in the file of {name!r} is damaged ({error!r}); convert the file anew", field="self_test"
        ) from error
    for part, cause in CAUSES.items():
        if not apart[part] <= tolerance:
            raise WeightsError(
                f"{name!r} fails its self-test: the {part} test picture is {apart[part]:.3g} away from what was "
                f"recorded, at most {tolerance:g} is rounding: {cause}; save it anew, or load it with self_test=false",
                field="self_test",
            )


def test_picture(size: tuple[int, int]) -> ImageArray:
    """A picture [H_px, W_px, 3] uint8 of smooth waves and a sharp square, by formula."""
    rows, columns = np.meshgrid(np.linspace(0, 1, size[0]), np.linspace(0, 1, size[1]), indexing="ij")
    waves = [0.5 + 0.5 * np.sin(2 * np.pi * (a * rows + b * columns)) for a, b in ((1, 2), (3, -1), (2, 5))]
    picture = np.stack(waves, -1)
    picture[size[0] // 4 : size[0] // 2, size[1] // 3 : 2 * size[1] // 3] = (1.0, 0.0, 0.25)
    return np.ascontiguousarray((picture * 255).astype(np.uint8))


test_picture.__test__ = False  # type: ignore[attr-defined]  # no test, whatever its name


def project(tensor: Tensor) -> list[float]:
    """16 numbers from M: sums with fixed signs, over the root of M."""
    values = tensor.detach().double().cpu().numpy().ravel()
    bits = np.random.Philox(key=SEED).random_raw(values.size)  # its raw output is the same in every version
    signs = ((bits[:, None] >> np.arange(SIZE, dtype=np.uint64)) & np.uint64(1)).astype(np.float64) * 2 - 1
    out: list[float] = (values @ signs / np.sqrt(max(1, values.size))).tolist()
    return out
