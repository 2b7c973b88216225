"""A PlanRequest becomes the values of a plan walk, every one of them checked against the model; nothing is resized.

Shapes: T frames, C context frames, N latent tokens, D width, H horizon, E elites, A action, P proprioception.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mstar_plan.errors import InvalidInputError
from mstar_plan.models.world_model import ModelSpec
from mstar_plan.rollout.constraints import worst_violation
from mstar_plan.rollout.limits import PlanDefaults
from mstar_plan.types import FloatArray, Goal, ImageArray, PlanRequest, WarmStart, finite_array


def batch_of_one(array: npt.NDArray[Any]) -> Tensor:
    """A copy [1, ...] as a tensor: the caller may use its array again at once."""
    return torch.tensor(array[None])


def check_frame_size(frames: ImageArray, spec: ModelSpec, name: str) -> None:
    """Refuses frames [..., H_px, W_px, 3] of another size than the model was trained on.

    Raises:
        InvalidInputError: They have one.
    """
    height, width = spec.image_size
    if frames.shape[-3:-1] != (height, width):
        raise InvalidInputError(
            f"{name} is {frames.shape[-3]}x{frames.shape[-2]} pixels; model {spec.name!r} sees {height}x{width}: "
            f"crop and resize the camera image to {height}x{width} before sending it",
            field=name,
        )


def walk_values(request: PlanRequest, spec: ModelSpec, sizes: PlanDefaults, fewest_samples: int) -> dict[str, Any]:
    """The inputs of the walks "plan" and "plan_to_latent", whichever the goal asks for.

    Args:
        request: What is asked for.
        spec: Of the model that is to answer.
        sizes: H, iterations and K.
        fewest_samples: The smallest K that the planner can work with.

    Raises:
        InvalidInputError: Something does not fit the model or the planner.
    """
    warm = request.warm_start
    fewest = max(fewest_samples, 0 if warm is None else len(warm.elites) + 2)
    if sizes.samples < fewest:
        raise InvalidInputError(f"samples is {sizes.samples}; this planner needs at least {fewest}", field="samples")
    if warm is not None:
        _check_warm(warm, spec, sizes.horizon)
    return {
        **context_values(request, spec),
        **goal_values(request.goal, spec),
        "seed": torch.tensor([request.seed]),
        "horizon": sizes.horizon,
        "iterations": sizes.iterations,
        "samples": sizes.samples,
        "warm_mean": None if warm is None else batch_of_one(warm.mean),
        "warm_elites": None if warm is None else batch_of_one(warm.elites),
        "last_action": _last_action(request, spec),
    }


def context_values(request: PlanRequest, spec: ModelSpec) -> Mapping[str, Any]:
    """What the model sees: frames, earlier latents and actions, and proprioception.

    Raises:
        InvalidInputError: A size is wrong, or what the model needs is missing.
    """
    frames = request.observation.frames
    check_frame_size(frames, spec, "observation.frames")
    latents, actions = _context(request, spec)
    return {
        "frames": batch_of_one(frames),
        "context_latents": None if latents is None else batch_of_one(latents),
        "context_actions": None if actions is None else batch_of_one(actions),
        "state": _state(request, spec),
    }


def _context(request: PlanRequest, spec: ModelSpec) -> tuple[FloatArray | None, FloatArray | None]:
    count, needed = len(request.observation.frames), spec.context_frames
    latents = request.context_latents
    if latents is not None:
        latents = finite_array(latents, "context_latents", ndim=3)
        if latents.shape[1:] != spec.latent_shape:
            raise InvalidInputError(
                f"context_latents has shape {latents.shape}; model {spec.name!r} needs [C, {spec.latent_shape[0]}, "
                f"{spec.latent_shape[1]}], as encode gave them",
                field="context_latents",
            )
        count += len(latents)
    if count != needed:
        raise InvalidInputError(
            f"the request has {count} frames (observation.frames and context_latents together); model {spec.name!r} "
            f"sees {needed}: send {needed}, oldest first; at the start of an episode repeat the first one",
            field="observation.frames",
        )
    return latents, _context_actions(request, spec) if needed > 1 else None


def _context_actions(request: PlanRequest, spec: ModelSpec) -> FloatArray:
    needed = spec.context_frames - 1
    if request.context_actions is None:
        raise InvalidInputError(
            f"context_actions is missing; model {spec.name!r} needs the {needed} action(s) between its frames",
            field="context_actions",
        )
    return _actions(request.context_actions, needed, spec)


def _last_action(request: PlanRequest, spec: ModelSpec) -> Tensor | None:
    """The action that was executed just before: the last of `context_actions`. Only a rate limit asks for it."""
    if request.context_actions is None:
        return None
    actions = _actions(request.context_actions, max(1, spec.context_frames - 1), spec)
    return None if spec.action.max_delta is None else batch_of_one(actions[-1])


def _actions(value: npt.ArrayLike, count: int, spec: ModelSpec) -> FloatArray:
    actions = finite_array(value, "context_actions", ndim=2)
    if actions.shape != (count, spec.action.size):
        raise InvalidInputError(
            f"context_actions has shape {actions.shape}; model {spec.name!r} needs [{count}, {spec.action.size}]",
            field="context_actions",
        )
    slack = 1e-5 * (spec.action.high - spec.action.low)
    if (actions > spec.action.high + slack).any() or (actions < spec.action.low - slack).any():
        raise InvalidInputError(
            f"context_actions reaches {np.abs(actions).max():.3g}, outside the bounds {spec.action.low.tolist()}.."
            f"{spec.action.high.tolist()}; send what was executed, in {', '.join(spec.action.units)}",
            field="context_actions",
        )
    return actions


def _state(request: PlanRequest, spec: ModelSpec) -> Tensor | None:
    """Proprioception [1, P] for models that use it; others see pixels alone, whatever else the robot senses."""
    if spec.state_size == 0:
        return None
    state = request.observation.state
    if state is None or state.shape != (spec.state_size,):
        found = "missing" if state is None else f"of shape {state.shape}"
        raise InvalidInputError(
            f"observation.state is {found}; model {spec.name!r} needs [{spec.state_size}]", field="observation.state"
        )
    return batch_of_one(state)


def goal_values(goal: Goal, spec: ModelSpec) -> Mapping[str, Tensor]:
    """What is wanted, as the input "goal_frames" or "goal_latent".

    Raises:
        InvalidInputError: It is of another size than the model's, or no model plans towards it.
    """
    if goal.frame is not None:
        check_frame_size(goal.frame, spec, "goal.frame")
        return {"goal_frames": batch_of_one(goal.frame[None])}
    if goal.latent is None:
        raise InvalidInputError(
            f"goal.state is given; model {spec.name!r} plans towards what it can see: give goal.frame or goal.latent",
            field="goal.state",
        )
    if goal.latent.shape != spec.latent_shape:
        raise InvalidInputError(
            f"goal.latent has shape {goal.latent.shape}; model {spec.name!r} needs {spec.latent_shape}, as encoded",
            field="goal.latent",
        )
    return {"goal_latent": batch_of_one(goal.latent[None])}


def _check_warm(warm: WarmStart, spec: ModelSpec, horizon: int) -> None:
    needed = (horizon, spec.action.size)
    if warm.mean.shape != needed:
        raise InvalidInputError(
            f"warm_start.mean has shape {warm.mean.shape}; this request needs {list(needed)}: keep the horizon, or "
            "leave the warm start out",
            field="warm_start",
        )
    for sequence in (warm.mean, *warm.elites):
        wrong = worst_violation(sequence, spec.action, rate=False)
        if wrong:
            raise InvalidInputError(f"warm_start: {wrong}; send it as the last plan gave it", field="warm_start")
