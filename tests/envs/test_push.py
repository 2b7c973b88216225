"""Push: goals are reachable by pushing, the puck rests where it is left, and the data move it."""

from __future__ import annotations

import numpy as np
import pytest

from envs.push import GOAL_STEPS, MIN_PUCK_TRAVEL_M, _draw_start
from envs.pushing import CONTACT_M, ScriptedPusher

STEP_M = 0.03  # one step of the disc at full speed


@pytest.mark.usefixtures("blind")
def test_a_goal_is_where_the_scripted_pusher_brings_the_puck(make):
    """The documented protocol, done again through `step`, ends at the goal: so every goal can be reached."""
    env, twin = make("Push"), make("Push")
    for seed in range(12):
        observation, _ = env.reset(seed=seed)
        rng = np.random.default_rng(seed)
        travel = 0.0
        while travel <= MIN_PUCK_TRAVEL_M:
            start = _draw_start(rng)
            pusher = ScriptedPusher(rng, STEP_M)
            twin.reset(seed=0)
            twin.unwrapped._place(twin.unwrapped.data, start)
            for _ in range(GOAL_STEPS):
                end, *_ = twin.step(np.clip(pusher(rng, twin.unwrapped.data.qpos.copy()), -1, 1))
            travel = np.linalg.norm(end["achieved_goal"] - start[2:])
        assert np.allclose(end["achieved_goal"], observation["desired_goal"], atol=1e-9)
        assert np.allclose(start[2:], observation["achieved_goal"])
    assert GOAL_STEPS == 16  # docs/tasks.md says so


@pytest.mark.usefixtures("blind")
def test_the_puck_is_pushed_and_then_stays(make):
    env = make("Push")
    env.reset(seed=0)
    task = env.unwrapped
    task._place(task.data, np.array([-0.12, 0.0, 0.0, 0.0]))
    for _ in range(4):
        observation, *_ = env.step(np.array([1.0, 0.0], np.float32))
    pushed = observation["achieved_goal"]
    assert pushed[0] == pytest.approx(-0.12 + 4 * STEP_M + CONTACT_M, abs=0.008)
    assert abs(pushed[1]) < 0.002
    for _ in range(3):
        observation, *_ = env.step(np.array([-1.0, 0.0], np.float32))
    assert np.allclose(observation["achieved_goal"], pushed, atol=0.004)
    rest = observation["achieved_goal"]
    observation, *_ = env.step(np.array([-1.0, 0.0], np.float32))
    assert np.allclose(observation["achieved_goal"], rest, atol=1e-5)


@pytest.mark.usefixtures("blind")
def test_only_the_puck_is_scored(make):
    env = make("Push")
    observation, _ = env.reset(seed=0)
    task = env.unwrapped
    far = np.array([0.19, 0.19]) * -np.sign(observation["desired_goal"])
    task._place(task.data, np.concatenate([far, observation["desired_goal"]]))
    assert task._info()["is_success"]


@pytest.mark.usefixtures("blind")
def test_exploration_moves_the_puck(make):
    env = make("Push")
    rng, moved = np.random.default_rng(0), []
    for seed in range(60):
        observation, _ = env.reset(seed=seed)
        for _ in range(40):
            before = observation["achieved_goal"]
            observation, *_ = env.step(env.unwrapped.explore(rng))
            moved.append(np.linalg.norm(observation["achieved_goal"] - before) > 0.002)
    assert 0.25 < np.mean(moved) < 0.6
