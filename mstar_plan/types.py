"""The nouns of planning: frozen, numpy only, every field with its shape and unit.

Shapes: T frames, H horizon, A action, P proprioception, N latent tokens, D width, E elites.
Images are [H_px, W_px, 3] uint8 RGB.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from mstar_plan.errors import InvalidInputError

# Units of actions that change an end effector's pose: xyz, Euler angles, gripper closedness.
POSE_UNITS = ("m", "m", "m", "rad", "rad", "rad", "1")

FloatArray = npt.NDArray[np.float32]
ImageArray = npt.NDArray[np.uint8]


def finite_array(value: npt.ArrayLike, name: str, *, ndim: int) -> FloatArray:
    """Returns `value` as a contiguous float32 array of rank `ndim`.

    Raises:
        InvalidInputError: It is not numeric, has another rank, or holds NaN or infinity.
    """
    try:
        with np.errstate(over="ignore"):  # too large for float32 is infinite, and told below
            array = np.ascontiguousarray(np.asarray(value, dtype=np.float32))
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"{name} is not a numeric array: {error}", field=name) from error
    if array.ndim != ndim:
        raise InvalidInputError(f"{name} has shape {array.shape}; it needs {ndim} dimensions", field=name)
    if not np.isfinite(array).all():
        bad = int(array.size - np.isfinite(array).sum())
        raise InvalidInputError(
            f"{name} holds {bad} value(s) that are NaN or infinite; send finite numbers", field=name
        )
    return array


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def check_image(value: Any, name: str, *, ndim: int) -> ImageArray:
    """Returns `value` if it is a uint8 RGB array of rank `ndim` (3: one image, 4: frames over time).

    Raises:
        InvalidInputError: Another type, dtype, rank or channel count, or an empty side.
    """
    if not isinstance(value, np.ndarray):
        raise InvalidInputError(f"{name} is a {type(value).__name__}; send a uint8 RGB array", field=name)
    if value.dtype != np.uint8:
        raise InvalidInputError(f"{name} has dtype {value.dtype}; send uint8 in 0..255", field=name)
    if value.ndim != ndim or value.shape[-1] != 3 or 0 in value.shape:
        axes = "[H, W, 3]" if ndim == 3 else "[T, H, W, 3]"
        raise InvalidInputError(f"{name} has shape {value.shape}; it needs {axes} with no empty side", field=name)
    return value


@dataclass(frozen=True, eq=False)
class Observation:
    """What a robot senses at one control step.

    Attributes:
        frames: [T, H_px, W_px, 3] uint8 RGB, oldest first; the last one is now.
        state: [P] proprioception in the model's units, or None.
        seq: Number of the control step that it was taken at; a plan echoes it.
    """

    frames: ImageArray
    state: FloatArray | None = None
    seq: int = 0

    def __post_init__(self) -> None:
        check_image(self.frames, "observation.frames", ndim=4)
        if self.state is not None:
            object.__setattr__(self, "state", finite_array(self.state, "observation.state", ndim=1))


@dataclass(frozen=True, eq=False)
class Goal:
    """What is to be reached: exactly one of the three.

    Attributes:
        frame: [H_px, W_px, 3] uint8 RGB picture of the goal.
        latent: [N, D] encoded goal, as `encode` gave it.
        state: [P] goal in the model's state units.
    """

    frame: ImageArray | None = None
    latent: FloatArray | None = None
    state: FloatArray | None = None

    def __post_init__(self) -> None:
        given = [name for name in ("frame", "latent", "state") if getattr(self, name) is not None]
        if len(given) != 1:
            what = "is missing" if not given else f"has {' and '.join(given)}"
            raise InvalidInputError(f"goal {what}; give exactly one of frame, latent, state", field="goal")
        if self.frame is not None:
            check_image(self.frame, "goal.frame", ndim=3)
        if self.latent is not None:
            object.__setattr__(self, "latent", finite_array(self.latent, "goal.latent", ndim=2))
        if self.state is not None:
            object.__setattr__(self, "state", finite_array(self.state, "goal.state", ndim=1))


@dataclass(frozen=True, eq=False)
class ActionSpec:
    """What an action is.

    Attributes:
        low: [A] smallest value of each dimension, in `units`.
        high: [A] largest value.
        dt_s: Seconds that one action is held.
        names: A names, one a dimension.
        units: A units.
        max_delta: [A] largest change between successive actions, or None for no rate limit.
    """

    low: FloatArray
    high: FloatArray
    dt_s: float
    names: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
    max_delta: FloatArray | None = None

    def __post_init__(self) -> None:
        low, high = finite_array(self.low, "action.low", ndim=1), finite_array(self.high, "action.high", ndim=1)
        if low.shape != high.shape or not (low < high).all():
            raise InvalidInputError(
                f"action bounds low {low.tolist()} and high {high.tolist()} do not pair up", field="action"
            )
        if not (np.isfinite(self.dt_s) and self.dt_s > 0):
            raise InvalidInputError(f"action.dt_s is {self.dt_s}; it needs a positive number of seconds", field="dt_s")
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)
        object.__setattr__(self, "names", tuple(self.names) or tuple(f"a{i}" for i in range(len(low))))
        object.__setattr__(self, "units", tuple(self.units) or ("1",) * len(low))
        if not len(self.names) == len(self.units) == len(low):
            raise InvalidInputError(
                f"{len(low)} action dimensions, but names {self.names} and units {self.units}", field="action"
            )
        if self.max_delta is not None:
            delta = finite_array(self.max_delta, "action.max_delta", ndim=1)
            if delta.shape != low.shape or not (delta > 0).all():
                raise InvalidInputError(
                    f"action.max_delta {delta.tolist()} needs {len(low)} positive values", field="max_delta"
                )
            object.__setattr__(self, "max_delta", delta)

    @property
    def size(self) -> int:
        """A, the number of action dimensions."""
        return len(self.low)


@dataclass(frozen=True, eq=False)
class WarmStart:
    """Where a search starts: what the last one found, already shifted to now.

    Attributes:
        mean: [H, A] action sequence in the action's units.
        elites: [E, H, A] best sequences of the last search (E may be 0).
    """

    mean: FloatArray
    elites: FloatArray

    def __post_init__(self) -> None:
        mean = finite_array(self.mean, "warm_start.mean", ndim=2)
        elites = finite_array(self.elites, "warm_start.elites", ndim=3)
        if elites.shape[1:] != mean.shape:
            raise InvalidInputError(
                f"warm_start.elites has shape {elites.shape}; a mean of shape {mean.shape} asks for [E, H, A] alike",
                field="warm_start",
            )
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "elites", elites)


class PlanStatus(enum.Enum):
    """How a search ended, and so what its plan is worth."""

    COMPLETE = "complete"  # every iteration that was asked for
    CONVERGED = "converged"  # the candidates agreed before that
    BUDGET_EXHAUSTED = "budget_exhausted"  # the time ran out; this is the best so far
    WARM_START_ONLY = "warm_start_only"  # no time for one iteration; this is the shifted last plan, not scored
    HOLD = "hold"  # there is no plan to trust; keep still


@dataclass(frozen=True)
class PlanTiming:
    """Where the time of a plan went, in milliseconds of the server's clock."""

    queue_ms: float = 0.0
    decode_ms: float = 0.0
    encode_ms: float = 0.0
    search_ms: float = 0.0
    total_ms: float = 0.0
    batch_size: int = 1  # most requests that shared one call with this one


@dataclass(frozen=True, eq=False)
class Plan:
    """An action sequence that starts now.

    Attributes:
        actions: [H, A] in the action's units, finite and inside the limits.
        cost: Predicted cost of `actions`; NaN where it was not scored.
        dt_s: Seconds that each action is held.
        status: How the search ended.
        iterations: Planner iterations that were run.
        samples: Candidates an iteration.
        cost_history: Best cost so far after each iteration, `iterations` numbers.
        std: [H, A] spread of the search distribution at the end.
        warm_start: What to start the next search from, not yet shifted.
        predicted: [H, N, D] latents predicted along `actions`, if asked for.
        seed: Seed of the noise; with the request it determines the plan.
        observation_seq: `seq` of the observation that was planned from.
        latent: [N, D] latent of the newest frame, a later request's context; only from models that see several frames.
        message: For HOLD and WARM_START_ONLY: why.
        timing: Where the time went.
    """

    actions: FloatArray
    cost: float
    dt_s: float
    status: PlanStatus
    iterations: int = 0
    samples: int = 0
    cost_history: tuple[float, ...] = ()
    std: FloatArray | None = None
    warm_start: WarmStart | None = None
    predicted: FloatArray | None = None
    seed: int = 0
    observation_seq: int = 0
    latent: FloatArray | None = None
    message: str = ""
    timing: PlanTiming = field(default_factory=PlanTiming)


@dataclass(frozen=True, eq=False)
class PlanRequest:
    """One request for a plan. None means: the planner's default. Nothing is clamped: over a limit is an error.

    Attributes:
        observation: What the robot senses.
        goal: What is to be reached.
        seed: Seed of the search noise, 0 <= seed < 2**63.
        horizon: H, actions in the plan.
        iterations: Planner iterations at most.
        samples: Candidates an iteration.
        soft_time_s: Seconds after which the best plan so far is returned.
        warm_start: Where to start the search.
        deterministic: The same bytes whoever shares the batch, at some cost in speed.
        want_predicted: Return the predicted latents along the plan.
        context_latents: [C, N, D] latents of earlier frames, oldest first, for models that see several frames.
        context_actions: [C, A] the actions taken after each of those frames.
        session: Name that fairness between clients is kept by.
    """

    observation: Observation
    goal: Goal
    seed: int = 0
    horizon: int | None = None
    iterations: int | None = None
    samples: int | None = None
    soft_time_s: float | None = None
    warm_start: WarmStart | None = None
    deterministic: bool = False
    want_predicted: bool = False
    context_latents: FloatArray | None = None
    context_actions: FloatArray | None = None
    session: str = ""

    def __post_init__(self) -> None:
        if not (_is_whole(self.seed) and 0 <= self.seed < 2**63):
            raise InvalidInputError(f"seed is {self.seed!r}; it needs a whole 0 <= seed < 2**63", field="seed")
        for name in ("horizon", "iterations", "samples"):
            value = getattr(self, name)
            if value is not None and not (_is_whole(value) and value >= 1):
                raise InvalidInputError(
                    f"{name} is {value!r}; it needs a whole number of at least 1, or none for the default", field=name
                )
        if self.soft_time_s is not None and not (np.isfinite(self.soft_time_s) and self.soft_time_s > 0):
            raise InvalidInputError(
                f"soft_time_s is {self.soft_time_s}; it needs a positive number of seconds", field="soft_time_s"
            )

    def but(self, **changes: Any) -> PlanRequest:
        """Returns a copy with some fields changed."""
        return replace(self, **changes)


@runtime_checkable
class Controller(Protocol):
    """Chooses the action of each control step: in process or over gRPC, learned or not."""

    last_plan: Plan | None  # the plan that the last action came from; None for controllers that do not plan

    def reset(self, goal: Goal, seed: int = 0) -> None:
        """Starts a new episode towards `goal`; the search noise follows from `seed`."""
        ...

    def act(self, observation: Observation) -> FloatArray:
        """Returns the [A] action to take now."""
        ...
