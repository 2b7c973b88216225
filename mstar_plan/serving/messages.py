"""The nouns of planning to and from their messages: observations, goals, warm starts, action and model descriptions.

Shapes: P proprioception, N latent tokens, D width, H horizon, A action, E elites.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from mstar_plan.errors import InvalidInputError, LimitExceededError
from mstar_plan.serving.codec import ImageFormat, decode_image, decode_tensor, encode_image, encode_tensor
from mstar_plan.serving.limits import ServerLimits
from mstar_plan.serving.proto.mstar.plan.v1 import planning_pb2 as pb
from mstar_plan.types import ActionSpec, FloatArray, Goal, ImageArray, Observation, WarmStart, finite_array


@dataclass(frozen=True, eq=False)
class ModelInfo:
    """What a served model takes and gives, as a client sees it.

    Attributes:
        name: Name to ask for it by.
        description: One sentence for people.
        image_size: (H_px, W_px) of the frames that it takes; others are refused.
        latent_shape: (N, D) of one encoded frame.
        action: Its actions, with bounds, units and dt.
        context_frames: Frames that it sees at once.
        state_size: P, width of the proprioception that it needs; 0 for pixels alone.
        max_horizon, max_iterations, max_samples, max_soft_time_s: The most that one plan may ask.
        horizon, iterations, samples: What a plan gets that does not say.
        ready: Warmed up and serving.
        message: Why it is not ready.
        contract: What must hold between robot and model beside all that, term by term; empty where nothing is said.
    """

    name: str
    description: str
    image_size: tuple[int, int]
    latent_shape: tuple[int, int]
    action: ActionSpec
    context_frames: int
    state_size: int
    max_horizon: int
    max_iterations: int
    max_samples: int
    max_soft_time_s: float
    horizon: int
    iterations: int
    samples: int
    ready: bool = True
    message: str = ""
    contract: Mapping[str, str] = field(default_factory=dict)


def decode_floats(tensor: pb.Tensor, field: str, limits: ServerLimits, *, ndim: int) -> FloatArray:
    """Reads a tensor of numbers as float32 of rank `ndim`.

    Raises:
        InvalidInputError: Damaged, bool, of another rank, or not finite in float32.
        LimitExceededError: Over a limit.
    """
    array = decode_tensor(tensor, field, limits)
    if array.dtype.kind == "b":
        raise InvalidInputError(f"{field} has dtype bool; send numbers", field=field)
    with np.errstate(over="ignore"):  # what does not fit float32 becomes infinite, which is refused
        return finite_array(array, field, ndim=ndim)


def encode_observation(observation: Observation, form: ImageFormat, *, camera: str = "") -> pb.Observation:
    """Puts an observation on the wire, its frames in the form asked for."""
    images = [encode_image(frame, form, camera=camera, name="observation.frames") for frame in observation.frames]
    state = [] if observation.state is None else [encode_tensor(observation.state, "state")]
    return pb.Observation(seq=observation.seq, images=images, state=state)


def decode_observation(message: pb.Observation, limits: ServerLimits) -> Observation:
    """Reads an observation.

    Raises:
        InvalidInputError: No image, images of several cameras or sizes, two states of one name, or a damaged value.
        LimitExceededError: Over a limit.
    """
    if not message.images:
        raise InvalidInputError("observation has no images; send the camera's frame", field="observation.images")
    if len(message.images) > limits.max_images:
        what = f"observation has {len(message.images)} images; max_images is {limits.max_images}"
        raise LimitExceededError(what, field="observation.images")
    cameras = {image.camera for image in message.images}
    if len(cameras) > 1:
        what = f"observation has images of {len(cameras)} cameras; the model sees one"
        raise InvalidInputError(f"{what}: send one camera's frames, oldest first", field="observation.images")
    return Observation(_frames(message.images, limits), _state(message.state, limits), seq=message.seq)


def encode_goal(goal: Goal, form: ImageFormat) -> pb.Goal:
    """Puts a goal on the wire, a picture in the form asked for."""
    if goal.frame is not None:
        return pb.Goal(image=encode_image(goal.frame, form, name="goal.frame"))
    if goal.latent is not None:
        return pb.Goal(latent=encode_tensor(goal.latent, "latent"))
    assert goal.state is not None
    return pb.Goal(state=encode_tensor(goal.state, "state"))


def decode_goal(message: pb.Goal, limits: ServerLimits) -> Goal:
    """Reads a goal.

    Raises:
        InvalidInputError: It is empty, or damaged.
        LimitExceededError: Over a limit.
    """
    kind = message.WhichOneof("kind")
    if kind == "image":
        return Goal(frame=decode_image(message.image, "goal.image", limits))
    if kind == "latent":
        return Goal(latent=decode_floats(message.latent, "goal.latent", limits, ndim=2))
    if kind == "state":
        return Goal(state=decode_floats(message.state, "goal.state", limits, ndim=1))
    raise InvalidInputError("goal is missing; give exactly one of image, latent, state", field="goal")


def encode_warm_start(warm: WarmStart) -> pb.WarmStart:
    """Puts a warm start on the wire."""
    return pb.WarmStart(mean=encode_tensor(warm.mean, "mean"), elites=encode_tensor(warm.elites, "elites"))


def decode_warm_start(message: pb.WarmStart, limits: ServerLimits) -> WarmStart:
    """Reads a warm start; without elites it has none.

    Raises:
        InvalidInputError: No mean, elites of another shape, or a damaged value.
        LimitExceededError: Over a limit.
    """
    mean = decode_floats(message.mean, "warm_start.mean", limits, ndim=2)
    if not message.HasField("elites"):
        return WarmStart(mean, np.zeros((0, *mean.shape), np.float32))
    return WarmStart(mean, decode_floats(message.elites, "warm_start.elites", limits, ndim=3))


def encode_action_spec(action: ActionSpec) -> pb.ActionSpec:
    """Puts the description of an action on the wire."""
    message = pb.ActionSpec(
        low=encode_tensor(action.low, "low"),
        high=encode_tensor(action.high, "high"),
        dt_s=action.dt_s,
        names=action.names,
        units=action.units,
    )
    if action.max_delta is not None:
        message.max_delta.CopyFrom(encode_tensor(action.max_delta, "max_delta"))
    return message


def decode_action_spec(message: pb.ActionSpec, limits: ServerLimits) -> ActionSpec:
    """Reads the description of an action.

    Raises:
        InvalidInputError: A damaged value.
    """
    return ActionSpec(
        low=decode_floats(message.low, "action.low", limits, ndim=1),
        high=decode_floats(message.high, "action.high", limits, ndim=1),
        dt_s=message.dt_s,
        names=tuple(message.names),
        units=tuple(message.units),
        max_delta=decode_floats(message.max_delta, "action.max_delta", limits, ndim=1)
        if message.HasField("max_delta")
        else None,
    )


def decode_model_info(message: pb.ModelInfo, limits: ServerLimits) -> ModelInfo:
    """Reads the description of a served model."""
    return ModelInfo(
        name=message.name,
        description=message.description,
        image_size=(message.image_height, message.image_width),
        latent_shape=(message.latent_tokens, message.latent_width),
        action=decode_action_spec(message.action, limits),
        context_frames=message.context_frames,
        state_size=message.state_size,
        max_horizon=message.limits.max_horizon,
        max_iterations=message.limits.max_iterations,
        max_samples=message.limits.max_samples,
        max_soft_time_s=message.limits.max_soft_time_s,
        horizon=message.defaults.horizon,
        iterations=message.defaults.iterations,
        samples=message.defaults.samples,
        ready=message.ready,
        message=message.message,
        contract=dict(message.contract),
    )


def _frames(images: Iterable[pb.Image], limits: ServerLimits) -> ImageArray:
    frames: list[ImageArray] = []
    pixels = 0
    for index, image in enumerate(images):
        field = f"observation.images[{index}]"
        frame = decode_image(image, field, limits, taken_pixels=pixels)
        if frames and frame.shape != frames[0].shape:
            what = f"{field} has shape {frame.shape}, the first {frames[0].shape}"
            raise InvalidInputError(f"{what}; send frames of one size", field=field)
        pixels += frame.shape[0] * frame.shape[1]
        frames.append(frame)
    return np.stack(frames)


def _state(tensors: Iterable[pb.Tensor], limits: ServerLimits) -> FloatArray | None:
    parts: dict[str, FloatArray] = {}
    for index, tensor in enumerate(tensors):
        field = f"observation.state[{index}]"
        if tensor.name in parts:
            raise InvalidInputError(f"{field} is named {tensor.name!r}, as one before it; name each once", field=field)
        parts[tensor.name] = decode_floats(tensor, field, limits, ndim=1)
    return np.concatenate(list(parts.values())) if parts else None
