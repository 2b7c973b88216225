"""What an evaluation keeps: one step, one episode, and all episodes of one controller in one task.

Shapes: S steps, A action, H horizon, N latent tokens, D width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from mstar_plan.types import FloatArray, ImageArray, Plan


@dataclass(frozen=True, eq=False)
class StepRecord:
    """One moment of a recorded episode: what was seen, and the plan that was made from it.

    Attributes:
        frame: [H_px, W_px, 3] uint8 RGB that the controller saw.
        picture: [S_px, S_px, 3] uint8 RGB of the same moment, large enough for people.
        distance: To the goal at this moment, metres.
        plan: What was planned from `frame`; None where an earlier plan goes on, at the last moment, and for controllers
            that do not plan.
        plan_ms: Milliseconds that the controller took; None where it was not asked.
    """

    frame: ImageArray
    picture: ImageArray
    distance: float
    plan: Plan | None = None
    plan_ms: float | None = None


@dataclass(frozen=True, eq=False)
class Recording:
    """All moments of one episode, for a video.

    Attributes:
        steps: S + 1 moments; the last one is after the last action.
        goal_frame: [H_px, W_px, 3] uint8 RGB of the goal, as the controller got it.
        goal_picture: [S_px, S_px, 3] uint8 RGB for people: `goal_frame` where the environment offers nothing larger.
    """

    steps: tuple[StepRecord, ...]
    goal_frame: ImageArray
    goal_picture: ImageArray


@dataclass(frozen=True, eq=False)
class EpisodeResult:
    """How one episode went.

    Attributes:
        seed: Seed of the environment and of the controller.
        success_last: The task was solved at the last step: this is the success that counts.
        success_any: It was solved after at least one step.
        distances: [S + 1] metres to the goal, at the start and after each step.
        actions: [S, A] actions that were taken.
        plan_ms: Milliseconds of each call of the controller that made a plan, in order; of every call for controllers
            that do not plan.
        late_steps: Steps at which the last action was held because no new one was there (real time only).
        elapsed_s: Seconds that the loop ran: controller, physics, camera and, in real time, waiting.
        dt_s: Seconds of the world that one step is.
        cost_histories: Best cost so far after each planner iteration, one tuple a plan.
        statuses: `PlanStatus` values, one a plan.
        strip: Small frames, evenly spaced from start to end, then the goal: [7, H_px, W_px, 3] uint8.
        recording: All moments, if they were asked for.
    """

    seed: int
    success_last: bool
    success_any: bool
    distances: FloatArray
    actions: FloatArray
    plan_ms: tuple[float, ...]
    late_steps: int
    elapsed_s: float
    dt_s: float
    cost_histories: tuple[tuple[float, ...], ...]
    statuses: tuple[str, ...]
    strip: ImageArray
    recording: Recording | None = None

    @property
    def steps(self) -> int:
        """S, the number of control steps."""
        return len(self.distances) - 1

    @property
    def final_distance(self) -> float:
        """Metres to the goal after the last step."""
        return float(self.distances[-1])


@dataclass(frozen=True, eq=False)
class EvaluationReport:
    """All episodes of one controller in one task, and where they were run.

    Attributes:
        env, model, planner, controller: Names of what was evaluated.
        seed: Seed of the first episode; episode i has `seed` + i.
        episodes: Results in the order of their seeds.
        success_distance: Metres below which the task counts as solved; None where the environment does not say.
        real_time: Whether the world went on while the controller was thinking.
        settings: Further settings worth keeping, such as horizon and samples.
        machine: As `machine.describe_machine` gives it.
        versions: As `machine.package_versions` gives it.
        video: File name of the video, relative to the report; empty when there is none.
    """

    env: str
    model: str
    planner: str
    controller: str
    seed: int
    episodes: tuple[EpisodeResult, ...]
    success_distance: float | None = None
    real_time: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    machine: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    video: str = ""


def strip_of(frames: list[ImageArray], goal: ImageArray, count: int = 6) -> ImageArray:
    """Returns [`count` + 1, H_px, W_px, 3]: `count` frames from first to last at even spacing, then the goal."""
    chosen: npt.NDArray[np.intp] = np.linspace(0, len(frames) - 1, count).round().astype(np.intp)
    return np.stack([*(frames[i] for i in chosen), goal])
