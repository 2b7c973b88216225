"""Reach: exact kinematics, the whole range of the joints, and targets that cover it."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from envs.reach import ELBOW_LIMIT, MIN_TIP_TRAVEL_M


@pytest.mark.usefixtures("blind")
def test_the_tip_is_where_the_scene_has_it(make):
    task = make("Reach").unwrapped
    for seed in range(20):
        task.reset(seed=seed)
        mujoco.mj_kinematics(task.model, task.data)
        assert np.allclose(task._task_position(task.data.qpos), task.data.site("tip").xpos[:2])


@pytest.mark.usefixtures("blind")
def test_start_and_goal_tips_are_apart_and_all_over(make):
    task = make("Reach").unwrapped
    tips = []
    for seed in range(200):
        observation, info = task.reset(seed=seed)
        assert info["distance"] > MIN_TIP_TRAVEL_M
        tips.append(observation["desired_goal"])
    quadrants = np.unique(np.sign(tips), axis=0, return_counts=True)[1]
    assert len(quadrants) == 4
    assert quadrants.min() > 25


@pytest.mark.usefixtures("blind")
def test_angles_are_radians_and_a_full_speed_second_turns_three(make):
    """With angles read as degrees the elbow is locked, and every planner fails without a word."""
    env = make("Reach")
    task = env.unwrapped
    env.reset(seed=0)
    task._place(task.data, np.array([0.0, -1.5]))
    for _ in range(10):
        observation, *_ = env.step(np.array([1.0, 1.0], np.float32))
    assert np.allclose(observation["state"][:2], [3.0, 1.5], atol=0.1)
    for _ in range(10):
        observation, *_ = env.step(np.array([1.0, 1.0], np.float32))
    assert abs(observation["state"][0]) <= np.pi  # wrapped
    assert ELBOW_LIMIT < observation["state"][1] < 2.7  # stopped by the joint


@pytest.mark.usefixtures("blind")
def test_exploration_reaches_all_poses(make):
    env = make("Reach")
    rng, poses = np.random.default_rng(0), []
    for seed in range(60):
        env.reset(seed=seed)
        for _ in range(30):
            observation, *_ = env.step(env.unwrapped.explore(rng))
            poses.append(observation["state"][:2])
    counts, *_ = np.histogram2d(*np.array(poses).T, bins=(6, 5), range=[[-np.pi, np.pi], [-2.6, 2.6]])
    assert counts.min() > 10
