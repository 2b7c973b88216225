"""A world whose answers are known: a point on a line that an action moves by 0.1 m at most, seen as a bright column."""

from collections.abc import Callable
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest

from mstar_plan.evaluation.episode import Clock
from mstar_plan.evaluation.records import EpisodeResult, EvaluationReport, Recording, StepRecord
from mstar_plan.types import ActionSpec, Goal, Observation, Plan, PlanStatus

SIZE = 16
STEP_M = 0.1


class LineEnv(gymnasium.Env):
    """Starts at 0; the goal is at 0.3 m and `seed` micrometres, solved within 0.05 m; `steps` long."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": [], "render_fps": 10}
    success_distance = 0.05

    def __init__(self, steps: int = 6) -> None:
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.steps, self.seeds, self.taken, self.closed = steps, [], [], False

    def reset(self, *, seed=None, options=None):
        self.seeds.append(seed)
        self.position, self.goal, self.count = 0.0, 0.3 + 1e-6 * seed, 0
        return self._observe(), self._info()

    def step(self, action):
        self.taken.append(float(action[0]))
        self.position += STEP_M * float(action[0])
        self.count += 1
        return self._observe(), 0.0, False, self.count >= self.steps, self._info()

    def simulate(self, actions):
        return self.position + STEP_M * np.cumsum(actions, axis=1)

    def close(self):
        self.closed = True

    def _observe(self):
        return {
            "image": _picture(self.position),
            "goal_image": _picture(self.goal),
            "state": np.array([self.position], np.float32),
            "achieved_goal": np.array([self.position]),
            "desired_goal": np.array([self.goal]),
        }

    def _info(self):
        distance = abs(self.position - self.goal)
        return {"distance": distance, "is_success": distance < self.success_distance}


class ScriptedController:
    """Gives actions from a list, each with a plan of its own, and lets `durations_s` of the test's clock go by."""

    def __init__(self, actions, clock=None, durations_s=(), plan_every=1):
        self._actions, self._clock, self._durations_s, self._plan_every = actions, clock, durations_s, plan_every
        self.goals, self.seeds, self.observations, self.last_plan = [], [], [], None

    def reset(self, goal: Goal, seed: int = 0) -> None:
        self.goals.append(goal)
        self.seeds.append(seed)
        self._count, self.last_plan = 0, None

    def act(self, observation: Observation) -> np.ndarray:
        self.observations.append(observation)
        if self._clock is not None:
            self._clock.time += self._durations_s[self._count]
        action = np.array([self._actions[self._count]], np.float32)
        if self._count % self._plan_every == 0:
            self.last_plan = make_plan((3.0, 2.0 - 0.1 * self._count))
        self._count += 1
        return action


class FakeClock:
    """Time that goes by only when told."""

    def __init__(self) -> None:
        self.time, self.slept = 100.0, []
        self.clock = Clock(now=lambda: self.time, sleep=self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += seconds


def _picture(position: float) -> np.ndarray:
    picture = np.full((SIZE, SIZE, 3), 30, np.uint8)
    picture[:, int(np.clip(position, 0, 0.7) * 20)] = 250
    return picture


def make_plan(costs=(2.0, 1.0), predicted=None) -> Plan:
    return Plan(
        actions=np.zeros((2, 1), np.float32),
        cost=costs[-1],
        dt_s=0.1,
        status=PlanStatus.COMPLETE,
        iterations=len(costs),
        cost_history=tuple(costs),
        predicted=predicted,
    )


def make_result(
    seed=0, distances=(0.3, 0.2, 0.01), plan_ms=(10.0, 20.0), record=False, solved=None, late=0
) -> EpisodeResult:
    frames = [_picture(0.3 - d) for d in distances]
    predicted = np.full((2, 1, 4), 0.5, np.float32)
    last = len(distances) - 1
    steps = tuple(
        StepRecord(f, f, d, make_plan(predicted=predicted) if i < last else None, 10.0 if i < last else None)
        for i, (f, d) in enumerate(zip(frames, distances, strict=True))
    )
    return EpisodeResult(
        seed=seed,
        success_last=distances[-1] < 0.05 if solved is None else solved,
        success_any=min(distances) < 0.05,
        distances=np.asarray(distances, np.float32),
        actions=np.zeros((last, 1), np.float32),
        plan_ms=plan_ms,
        late_steps=late,
        elapsed_s=0.5,
        dt_s=0.1,
        cost_histories=tuple((2.0, 1.0) for _ in plan_ms),
        statuses=("complete",) * len(plan_ms),
        strip=np.stack([frames[0]] * 6 + [_picture(0.3)]),
        recording=Recording(steps, _picture(0.3), _picture(0.3)) if record else None,
    )


def make_report(*results, env="line", controller="grpc", planner="cem", **changes) -> EvaluationReport:
    fields = {
        "model": env,
        "seed": 0,
        "success_distance": 0.05,
        "machine": {"cpu": "Test CPU", "cores_usable": 2, "date": "2030-01-02T03:04:05+00:00"},
    }
    return EvaluationReport(
        env=env, planner=planner, controller=controller, episodes=results or (make_result(),), **{**fields, **changes}
    )


@pytest.fixture
def line_env() -> LineEnv:
    return LineEnv()


@pytest.fixture
def action() -> ActionSpec:
    return ActionSpec(low=[-1.0], high=[1.0], dt_s=0.1)


@pytest.fixture
def fake_clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def scripted() -> Callable[..., ScriptedController]:
    return ScriptedController


@pytest.fixture
def result() -> Callable[..., EpisodeResult]:
    return make_result


@pytest.fixture
def report() -> Callable[..., EvaluationReport]:
    return make_report


@pytest.fixture
def plan() -> Callable[..., Plan]:
    return make_plan
