"""Wall: the straight way is blocked, the way round is open, and the data go through it."""

from __future__ import annotations

import numpy as np
import pytest

from envs.wall import PASSAGE


def _drive(env, waypoints, steps):
    """Goes straight from one waypoint [m] to the next at up to full speed; returns the last info."""
    waypoints = list(waypoints)
    for _ in range(steps):
        error = waypoints[0] - env.unwrapped.data.qpos
        if len(waypoints) > 1 and np.abs(error).max() < 0.04:
            waypoints.pop(0)
            error = waypoints[0] - env.unwrapped.data.qpos
        *_, info = env.step(np.clip(error / 0.07, -1, 1).astype(np.float32))
    return info


@pytest.mark.usefixtures("blind")
def test_the_straight_line_fails_and_the_way_round_arrives_in_half_the_time(make):
    env = make("Wall")
    for seed in range(60):
        observation, _ = env.reset(seed=seed)
        goal, start = observation["desired_goal"], observation["achieved_goal"]
        assert goal[0] * start[0] < 0
        assert not _drive(env, [goal], 40)["is_success"], seed
        env.reset(seed=seed)
        side = np.array([np.sign(start[0]) * 0.1, PASSAGE[1]])
        assert _drive(env, [side, side * [-1, 1], goal], 20)["is_success"], seed


@pytest.mark.usefixtures("blind")
def test_both_sides_are_starts(make):
    env = make("Wall")
    sides = [np.sign(env.reset(seed=seed)[0]["achieved_goal"][0]) for seed in range(100)]
    assert 30 < sides.count(1.0) < 70


@pytest.mark.usefixtures("blind")
def test_one_step_covers_seven_centimetres_and_walls_hold(make):
    env = make("Wall")
    env.reset(seed=0)
    task = env.unwrapped
    task._place(task.data, np.array([-0.3, -0.3]))
    observation, *_ = env.step(np.array([1.0, 0.0], np.float32))
    assert np.allclose(observation["achieved_goal"], [-0.23, -0.3], atol=1e-3)
    for _ in range(10):
        observation, *_ = env.step(np.array([1.0, 0.0], np.float32))
    assert observation["achieved_goal"][0] == pytest.approx(-0.07, abs=0.004)  # wall at -0.025, radius 0.045
    for _ in range(10):
        observation, *_ = env.step(np.array([0.0, -1.0], np.float32))
    assert observation["achieved_goal"][1] == pytest.approx(-0.455, abs=0.004)


@pytest.mark.usefixtures("blind")
def test_exploration_covers_the_arena_and_goes_through_the_passage(make):
    env = make("Wall")
    rng, places, crossings = np.random.default_rng(0), [], 0
    for seed in range(60):
        observation, _ = env.reset(seed=seed)
        for _ in range(40):
            before = observation["achieved_goal"]
            observation, *_ = env.step(env.unwrapped.explore(rng))
            places.append(observation["achieved_goal"])
            crossings += before[0] * places[-1][0] < 0
    counts, *_ = np.histogram2d(*np.array(places).T, bins=5, range=[[-0.47, 0.47]] * 2)
    assert counts.min() > 15
    assert crossings > 40
