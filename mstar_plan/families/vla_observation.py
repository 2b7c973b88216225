"""What a policy sees of an observation: keys of openpi and LeRobot to pictures, state and prompt, and these to tensors.

Shapes: B observations, I cameras, Y and X pixels, D numbers of a state, L prompt tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mstar_plan.errors import InvalidInputError, LimitExceededError, did_you_mean
from mstar_plan.families.abilities import ObservationField
from mstar_plan.models.vla.normalise import Normaliser

STATE, PROMPT = "observation.state", "prompt"
TOKEN_BUCKET = 16  # prompts are filled to a multiple of it, so that requests of nearly equal length are seen together
MAX_PROMPT = 4096  # characters
MAX_SIDE = 8192  # pixels

Value = npt.NDArray[np.generic] | str | float
Images = Callable[[Sequence[Tensor | None]], tuple[Tensor, Tensor]]


@dataclass(frozen=True, eq=False)
class Sight:
    """One observation, checked.

    Attributes:
        pictures: [Y_px, X_px, 3] uint8, or floats in [0, 1], of each camera; None where it is missing.
        state: [D] float32, in the robot's units.
        prompt: What to do.
    """

    pictures: tuple[Tensor | None, ...]
    state: Tensor
    prompt: str


@dataclass(frozen=True, eq=False)
class Eyes:
    """How one policy looks at observations.

    Attributes:
        cameras: Names of its pictures, in the order in which it sees them.
        state_names: Of the numbers of its state.
        images: Makes images [1, I, 3, Y, X] and which are there, [1, I], of one observation's pictures.
        words: Makes the text that is tokenised of (prompt, normalised state [D]).
        tokenize: Token ids of a text.
        most_tokens: That a prompt is cut to.
        state: How the state is normalised.
        state_width: Of the padded state; 0 where the policy reads its state in the prompt.
        rename: {name of a robot's value: name of the policy's}.
    """

    cameras: tuple[str, ...]
    state_names: tuple[str, ...]
    images: Images
    words: Callable[[str, Tensor], str]
    tokenize: Callable[[str], Sequence[int]]
    most_tokens: int
    state: Normaliser
    state_width: int
    rename: Mapping[str, str] = field(default_factory=dict)

    @property
    def fields(self) -> tuple[ObservationField, ...]:
        """The keys of an observation; openpi's names for them are taken, too."""
        alone = len(self.cameras) == 1
        pictures = [
            ObservationField(key, "image", (None, None, 3), required=alone, description="RGB; may be missing")
            for key in self.cameras
        ]
        state = ObservationField(
            STATE, "state", (len(self.state_names),), self.state_names, description="proprioception"
        )
        return (*pictures, state, ObservationField(PROMPT, "text", description="what to do"))

    def look(self, observation: Mapping[str, Value]) -> Sight:
        """Sorts and checks an observation.

        Raises:
            InvalidInputError: A key is missing, unknown or given twice, or a value is of another kind or shape.
            LimitExceededError: A picture or the prompt is too large.
        """
        found: dict[str, Value] = {}
        for key, value in observation.items():
            name = self.name_of(key)
            if name in found:
                raise InvalidInputError(f"observation gives {name!r} twice, once as {key!r}; send it once", field=key)
            found[name] = value
        pictures = tuple(_picture(key, found[key]) if key in found else None for key in self.cameras)
        if all(picture is None for picture in pictures):
            raise InvalidInputError(f"observation has no picture; send one of {', '.join(self.cameras)}", field="image")
        for name in (STATE, PROMPT):
            if name not in found:
                raise InvalidInputError(f"observation lacks {name!r}; it has {sorted(observation)}", field=name)
        return Sight(pictures, _state(found[STATE], len(self.state_names)), _prompt(found[PROMPT]))

    def name_of(self, key: str) -> str:
        """The policy's own name of a key: its own, a renamed one, LeRobot's with slashes, or openpi's.

        Raises:
            InvalidInputError: It is none of them.
        """
        name = self.rename.get(key, key)
        dotted = name.replace("/", ".")
        if dotted in (*self.cameras, STATE):
            return dotted
        if name in ("prompt", "task"):
            return PROMPT
        if name in ("state", "observation"):
            return STATE
        end = dotted.removeprefix("observation.").removeprefix("images.")
        ends = {camera.rpartition(".")[2]: camera for camera in self.cameras}
        if end in ends:
            return ends[end]
        camera = self._openpi_camera(end)
        if camera is None:
            known = (*self.cameras, STATE, PROMPT)
            raise InvalidInputError(f"observation has unknown key {key!r}{did_you_mean(key, known)}", field=key)
        return camera

    def _openpi_camera(self, end: str) -> str | None:
        """openpi's robots call the camera that sees the scene image or exterior_image_1_left, the other one wrist_*."""
        wrists = [camera for camera in self.cameras if "wrist" in camera]
        others = [camera for camera in self.cameras if camera not in wrists]
        if end in ("wrist_image", "wrist_image_left"):
            return wrists[0] if wrists else self.cameras[1] if len(self.cameras) > 1 else None
        if end in ("image", "exterior_image_1_left"):
            return others[0] if others else self.cameras[0]
        return None

    def tensors(self, sights: Sequence[Sight]) -> dict[str, Tensor]:
        """What the policy observes of B observations: images, image_mask, tokens, token_mask, and state."""
        images, masks = zip(*[self.images(sight.pictures) for sight in sights], strict=True)
        scaled = [self.state.normalise(sight.state) for sight in sights]
        texts = [self.words(sight.prompt, state) for sight, state in zip(sights, scaled, strict=True)]
        tokens, token_mask = self._tokens(texts)
        made = {"images": torch.cat(images), "image_mask": torch.cat(masks), "tokens": tokens, "token_mask": token_mask}
        if self.state_width:
            padded = torch.zeros(len(sights), self.state_width)
            padded[:, : len(self.state_names)] = torch.stack(scaled)
            made["state"] = padded
        return made

    def _tokens(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        ids = [list(self.tokenize(text))[: self.most_tokens] for text in texts]
        longest = max(1, *[len(each) for each in ids])
        length = min(-(-longest // TOKEN_BUCKET) * TOKEN_BUCKET, max(self.most_tokens, longest))
        tokens = torch.tensor([each + [0] * (length - len(each)) for each in ids], dtype=torch.int64)
        return tokens, torch.arange(length) < torch.tensor([[len(each)] for each in ids])


def _picture(key: str, value: Value) -> Tensor:
    """[Y, X, 3] uint8 or float32 in [0, 1]; channels may also come first."""
    array = np.asarray(value)
    if array.ndim == 3 and array.shape[-1] != 3 and array.shape[0] == 3:
        array = array.transpose(1, 2, 0)
    if array.ndim != 3 or array.shape[-1] != 3 or 0 in array.shape:
        raise InvalidInputError(f"{key} has shape {array.shape}; send a picture [H, W, 3]", field=key)
    if max(array.shape[:2]) > MAX_SIDE:
        raise LimitExceededError(f"{key} has {array.shape[:2]} pixels; at most {MAX_SIDE} a side are taken", field=key)
    if array.dtype == np.uint8:
        return torch.from_numpy(np.ascontiguousarray(array))
    if not np.issubdtype(array.dtype, np.floating):
        raise InvalidInputError(f"{key} has dtype {array.dtype}; send uint8, or floats in [0, 1]", field=key)
    image = torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32))
    if not bool(((image >= 0) & (image <= 1)).all()):  # NaN is in no range
        raise InvalidInputError(f"{key} holds numbers outside [0, 1]; send uint8, or floats in [0, 1]", field=key)
    return image


def _state(value: Value, size: int) -> Tensor:
    try:
        array = np.asarray(value, dtype=np.float32).reshape(-1)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"{STATE} is not numeric: {error}; send [{size}] floats", field=STATE) from error
    if array.shape != (size,):
        raise InvalidInputError(f"{STATE} has {array.size} numbers; this policy needs {size}", field=STATE)
    if not np.isfinite(array).all():
        raise InvalidInputError(f"{STATE} holds NaN or infinity; send finite numbers", field=STATE)
    return torch.from_numpy(array.copy())


def _prompt(value: Value) -> str:
    text = value.item() if isinstance(value, np.ndarray) and value.ndim == 0 else value
    if not isinstance(text, str) or not text.strip():
        raise InvalidInputError(f"{PROMPT} is {value!r}; send what to do, as text", field=PROMPT)
    if len(text) > MAX_PROMPT:
        raise LimitExceededError(f"{PROMPT} has {len(text)} characters; at most {MAX_PROMPT} are taken", field=PROMPT)
    return text
