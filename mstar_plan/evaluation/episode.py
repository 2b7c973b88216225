"""One closed-loop episode: camera image in, action out, until the environment says that the time is up."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, cast

import gymnasium
import numpy as np

from mstar_plan.errors import InvalidInputError
from mstar_plan.evaluation.records import EpisodeResult, Recording, StepRecord, strip_of
from mstar_plan.types import Controller, FloatArray, Goal, ImageArray, Observation, Plan

Env: TypeAlias = gymnasium.Env[Any, Any]


@dataclass(frozen=True)
class EpisodeConfig:
    """How an episode is run.

    Attributes:
        goal: What the controller is told: its "image", or its "state" (for oracles, and worlds without pixels).
        send_state: Send proprioception beside the image.
        real_time: The world does not wait. Steps start on a clock of the environment's dt; an action that comes too
            late is applied at the step that it comes in, and until then the last one is held.
        record: Keep every frame and plan, for a video.
        picture_size: Side in pixels of the recorded pictures.
    """

    goal: Literal["image", "state"] = "image"
    send_state: bool = False
    real_time: bool = False
    record: bool = False
    picture_size: int = 384

    def __post_init__(self) -> None:
        if self.goal not in ("image", "state"):
            raise InvalidInputError(f"goal is {self.goal!r}; use 'image' or 'state'", field="goal")
        if self.picture_size < 16:
            raise InvalidInputError(f"picture_size is {self.picture_size}; use at least 16", field="picture_size")


@dataclass(frozen=True)
class Clock:
    """Where time comes from; tests give another.

    Attributes:
        now: Seconds from any fixed moment.
        sleep: Waits for so many seconds.
    """

    now: Callable[[], float] = time.perf_counter
    sleep: Callable[[float], None] = time.sleep


@dataclass
class _Log:
    """What an episode has gathered so far."""

    distances: list[float]
    frames: list[ImageArray]
    actions: list[FloatArray] = field(default_factory=list)
    successes: list[bool] = field(default_factory=list)
    plan_ms: list[float] = field(default_factory=list)
    plans: list[Plan] = field(default_factory=list)
    moments: list[StepRecord] = field(default_factory=list)
    late_steps: int = 0
    elapsed_s: float = 0.0


def run_episode(
    env: Env,
    controller: Controller,
    seed: int,
    config: EpisodeConfig | None = None,
    *,
    clock: Clock | None = None,
) -> EpisodeResult:
    """Runs one episode from reset to the environment's time limit.

    The controller sees frames and goal only; a gRPC client and an in-process controller go through the same lines. Each
    observation carries the number of its step as `seq`, so that a controller can tell how many steps went by.

    Args:
        env: A goal-conditioned environment with dict observations (`image`, `goal_image`, `state`, `desired_goal`), and
            `distance` and `is_success` in its info.
        controller: Who chooses the actions.
        seed: Seed of the environment and of the controller.
        config: How to run it.
        clock: Where time comes from.

    Raises:
        InvalidInputError: The environment lacks one of these.
    """
    config, clock = config or EpisodeConfig(), clock or Clock()
    dt_s = step_seconds(env)
    observation, info = env.reset(seed=seed)
    controller.reset(goal_of(observation, config.goal), seed=seed)
    goal_frame = _entry(observation, "goal_image")
    log = _Log([float(_entry(info, "distance"))], [_entry(observation, "image")])
    held = _still(env)
    done = False
    while not done:
        picture = _picture(env, log.frames[-1], config)
        start = clock.now()
        action = np.asarray(controller.act(observe(observation, config, seq=len(log.actions))), dtype=np.float32)
        plan_s = clock.now() - start
        _note_moment(log, picture, _note_plan(log, controller.last_plan, plan_s), plan_s)
        late = int(plan_s / dt_s) if config.real_time else 0
        begun = len(log.actions)
        while not done and len(log.actions) < begun + late:
            observation, done = _step(env, held, log)
            log.late_steps += 1
            if not done:
                _note_moment(log, _picture(env, log.frames[-1], config), None, None)
        if not done:
            observation, done = _step(env, action, log)
            held = action
        if config.real_time:
            clock.sleep(max(0.0, start + (len(log.actions) - begun) * dt_s - clock.now()))
        log.elapsed_s += clock.now() - start
    _note_moment(log, _picture(env, log.frames[-1], config), None, None)
    return _result(log, seed, dt_s, goal_frame, _recording(env, log, goal_frame, config))


def step_seconds(env: Env) -> float:
    """Returns dt, the seconds of one control step.

    Raises:
        InvalidInputError: The environment's metadata has no positive `render_fps`.
    """
    fps = env.metadata.get("render_fps")
    if not isinstance(fps, int | float) or fps <= 0:
        raise InvalidInputError(f"metadata['render_fps'] of the environment is {fps!r}; set it to 1 / dt")
    return 1.0 / float(fps)


def goal_of(observation: Mapping[str, Any], kind: str) -> Goal:
    """Returns the goal that an observation shows: its "image", or its "state" (the desired task position)."""
    if kind == "image":
        return Goal(frame=_entry(observation, "goal_image"))
    return Goal(state=_entry(observation, "desired_goal"))


def observe(observation: Mapping[str, Any], config: EpisodeConfig, *, seq: int) -> Observation:
    """Returns what the controller is shown of an environment's dict observation."""
    state = np.asarray(_entry(observation, "state"), np.float32) if config.send_state else None
    return Observation(frames=_entry(observation, "image")[None], state=state, seq=seq)


def _step(env: Env, action: FloatArray, log: _Log) -> tuple[Mapping[str, Any], bool]:
    observation, _, terminated, truncated, info = env.step(action)
    log.actions.append(action)
    log.frames.append(_entry(observation, "image"))
    log.distances.append(float(_entry(info, "distance")))
    log.successes.append(bool(_entry(info, "is_success")))
    return observation, terminated or truncated


def _still(env: Env) -> FloatArray:
    """Returns the action that is held before the first one has come: zero, or what is nearest to it within bounds."""
    space = cast(gymnasium.spaces.Box, env.action_space)
    return np.clip(np.zeros(space.shape, np.float32), space.low, space.high)


def _note_plan(log: _Log, plan: Plan | None, plan_s: float) -> Plan | None:
    """Returns the plan if it is a new one."""
    if plan is not None and log.plans and plan is log.plans[-1]:
        return None  # a further action of the same plan: no planning was timed
    log.plan_ms.append(1e3 * plan_s)
    if plan is not None:
        log.plans.append(plan)
    return plan


def _note_moment(log: _Log, picture: ImageArray | None, plan: Plan | None, plan_s: float | None) -> None:
    if picture is not None:
        plan_ms = None if plan_s is None else 1e3 * plan_s
        log.moments.append(StepRecord(log.frames[-1], picture, log.distances[-1], plan, plan_ms))


def _picture(env: Env, frame: ImageArray, config: EpisodeConfig) -> ImageArray | None:
    if not config.record:
        return None
    render = getattr(env.unwrapped, "render_pixels", None)
    return frame if render is None else np.asarray(render(config.picture_size), np.uint8)


def _recording(env: Env, log: _Log, goal_frame: ImageArray, config: EpisodeConfig) -> Recording | None:
    if not config.record:
        return None
    render = getattr(env.unwrapped, "render_goal", None)
    large = goal_frame if render is None else np.asarray(render(config.picture_size), np.uint8)
    return Recording(tuple(log.moments), goal_frame, large)


def _result(log: _Log, seed: int, dt_s: float, goal_frame: ImageArray, recording: Recording | None) -> EpisodeResult:
    return EpisodeResult(
        seed=seed,
        success_last=log.successes[-1],
        success_any=any(log.successes),
        distances=np.asarray(log.distances, np.float32),
        actions=np.stack(log.actions),
        plan_ms=tuple(log.plan_ms),
        late_steps=log.late_steps,
        elapsed_s=log.elapsed_s,
        dt_s=dt_s,
        cost_histories=tuple(plan.cost_history for plan in log.plans),
        statuses=tuple(plan.status.value for plan in log.plans),
        strip=strip_of(log.frames, goal_frame),
        recording=recording,
    )


def _entry(values: Mapping[str, Any], key: str) -> Any:
    if key not in values:
        message = f"the environment gives no {key!r}, only {sorted(values)}; evaluation needs it"
        raise InvalidInputError(message, field=key)
    return values[key]
