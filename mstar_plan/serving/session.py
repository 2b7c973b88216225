"""A session: what the server remembers for one robot between its plans, isolated from every other robot's."""

from __future__ import annotations

import copy
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mstar_plan.errors import CancelledError, InvalidInputError
from mstar_plan.rollout.episode import Episode
from mstar_plan.rollout.solver import PlanSolver
from mstar_plan.rollout.warm_start import shift
from mstar_plan.types import ActionSpec, FloatArray, Goal, ImageArray, Observation, Plan, PlanRequest, WarmStart


@dataclass(frozen=True, eq=False)
class Executed:
    """What a robot says that it did since the session's last plan.

    Attributes:
        steps: S; None to tell it from the numbers of the observations.
        actions: [S, A]; None for the first S of the last plan.
    """

    steps: int | None = None
    actions: FloatArray | None = None


@dataclass(frozen=True, eq=False)
class Start:
    """A plan that has begun: its request, and what the session knew then.

    Attributes:
        epoch: Of the session.
        request: With the session's goal, warm start, context and seed.
        episode: The session's memory at that moment; a copy, so that plans may overlap or fail.
    """

    epoch: int
    request: PlanRequest
    episode: Episode


@dataclass(frozen=True, eq=False)
class _Last:
    """The last plan of an epoch, and the memory before and after it."""

    plan: Plan
    before: Episode
    after: Episode


class Session:
    """One robot's session. Thread-safe: calls may overlap, and each plan sees one consistent state.

    Args:
        session_id: Its unguessable name.
        model: Name of the model that it plans with.
        solver: Of that model.
        ttl_s: Seconds without a call after which it is forgotten.
        seed: The noise of all its plans follows from it.
        goal: What is to be reached, encoded; None until it is known.
    """

    def __init__(
        self, session_id: str, model: str, solver: PlanSolver, *, ttl_s: float, seed: int, goal: Goal | None
    ) -> None:
        self.session_id, self.model, self.ttl_s = session_id, model, ttl_s
        self.seed, self.goal, self.epoch = seed, goal, 0
        self._solver = solver
        self._lock = threading.Lock()
        self._last: _Last | None = None

    def reset(self, goal: Goal | None, seed: int | None) -> None:
        """Starts a new episode: a new epoch, without warm start and context; goal and seed stay where they are None."""
        with self._lock:
            self.epoch += 1
            self._last = None
            self.goal = goal if goal is not None else self.goal
            self.seed = seed if seed is not None else self.seed

    def update_goal(self, goal: Goal) -> None:
        """Changes the goal and nothing else."""
        with self._lock:
            self.goal = goal

    def begin(self, observation: Observation, executed: Executed, horizon: int, epoch: int | None = None) -> Start:
        """Begins a plan.

        Args:
            observation: The frame of now, or the frames after each executed step.
            executed: What the robot did since the last plan.
            horizon: H of the plan, which its warm start is cut or padded to.
            epoch: The epoch that the client believes in, if it says.

        Raises:
            InvalidInputError: Another epoch, no goal, an observation older than the last one, or executed steps,
                actions and frames that contradict each other.
        """
        with self._lock:
            now, goal, seed, last = self.epoch, self.goal, self.seed, self._last
        if epoch is not None and epoch != now:
            what = f"session_epoch is {epoch}, but the session is in epoch {now}: it was reset since"
            raise InvalidInputError(f"{what}; plan again from a new observation", field="session_epoch")
        if goal is None:
            raise InvalidInputError("goal is missing: the session has none yet; call UpdateGoal", field="goal")
        if last is None:
            _check_frames(observation, 1)
            episode = Episode(self._solver.spec, goal, seed)
        else:
            episode = self._moved(last, observation, executed)
            episode.goal = goal
            if episode.warm is not None:
                horizon = min(horizon, self._solver.limits.max_horizon)  # over it, the solver says what is wrong
                episode.warm = _of_horizon(episode.warm, horizon, self._solver.spec.action)
        return Start(now, episode.request(observation), episode)

    def finish(self, start: Start, plan: Plan) -> None:
        """Remembers a plan, unless one for a newer observation came in first.

        Raises:
            CancelledError: The session was reset while the plan was made, so it is for an episode that is over.
        """
        after = _copy(start.episode)
        after.planned(plan)
        with self._lock:
            if start.epoch != self.epoch:
                raise CancelledError(
                    f"the session was reset (epoch {start.epoch} -> {self.epoch}) while this plan was made; plan again",
                    field="session_id",
                )
            if self._last is None or plan.observation_seq >= self._last.plan.observation_seq:
                self._last = _Last(plan, start.episode, after)

    def _moved(self, last: _Last, observation: Observation, executed: Executed) -> Episode:
        """The memory after the last plan, moved on by what was executed since."""
        spec = self._solver.spec
        steps = _steps(last.plan, observation.seq, executed, spec.action.size)
        _check_frames(observation, steps)
        taken = last.plan.actions[:steps] if executed.actions is None else executed.actions
        if steps == 0:  # the same step again: its own frame is not before it
            episode = _copy(last.before)
            episode.warm, episode.plans = last.plan.warm_start, last.after.plans
            return episode
        episode = _copy(last.after)
        alone = spec.context_frames == 1
        if len(taken) == steps and (alone or steps in (1, len(observation.frames))):
            skip = max(0, steps - spec.context_frames)  # too long ago to be context
            episode.warm = None if episode.warm is None else shift(episode.warm, skip, spec.action)
            self._replay(episode, taken[skip:], [] if alone else list(observation.frames[skip:-1]))
            return episode
        # Frames or actions in between are not known, so the context begins anew; the warm start is still of use.
        fresh = Episode(spec, episode.goal, episode.seed)
        fresh.plans = episode.plans
        fresh.warm = None if episode.warm is None else shift(episode.warm, steps, spec.action)
        return fresh

    def _replay(self, episode: Episode, actions: FloatArray, frames: Sequence[ImageArray]) -> None:
        """Notes executed actions, and the frame that was seen after each of them but the last."""
        for index, action in enumerate(actions):
            episode.executed(action)
            if index < len(frames):
                episode.saw(self._solver.encode(frames[index]))


def _check_frames(observation: Observation, steps: int) -> None:
    count = len(observation.frames)
    if count not in (1, steps):
        what = f"observation has {count} images for {steps} executed step(s)"
        raise InvalidInputError(f"{what}; send now's alone, or the one after each step", field="observation.images")


def _copy(episode: Episode) -> Episode:
    """A copy with a memory of its own; what never changes is shared."""
    return copy.deepcopy(episode, {id(episode.spec): episode.spec, id(episode.goal): episode.goal})


def _of_horizon(warm: WarmStart, horizon: int, action: ActionSpec) -> WarmStart:
    """A warm start for another horizon: its first actions, with the centre of the bounds after its end."""
    have = len(warm.mean)
    if have == horizon:
        return warm
    tail = np.tile((action.low + action.high) / 2, (max(0, horizon - have), 1)).astype(np.float32)
    tails = np.broadcast_to(tail, (len(warm.elites), *tail.shape))
    mean = np.concatenate([warm.mean[:horizon], tail])
    return WarmStart(mean, np.concatenate([warm.elites[:, :horizon], tails], axis=1))


def _steps(last: Plan, seq: int, executed: Executed, size: int) -> int:
    """Steps since the last plan: as the robot says, else from the numbers of the observations."""
    if seq < last.observation_seq:
        what = f"observation.seq is {seq}, but the session has planned from {last.observation_seq} already"
        raise InvalidInputError(f"{what}; number observations upwards, or reset the session", field="observation.seq")
    if executed.actions is None:
        return seq - last.observation_seq if executed.steps is None else executed.steps
    steps, shape = executed.steps, executed.actions.shape
    if shape[1] != size or steps not in (None, shape[0]):
        expected = f"[{'S' if steps is None else steps}, {size}]"
        raise InvalidInputError(f"executed_actions has shape {shape}; it needs {expected}", field="executed_actions")
    return int(shape[0])
