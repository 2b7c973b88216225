"""What all tasks have in common: the Gymnasium contract, seeding, checked actions, true-state rollouts, exploration."""

from __future__ import annotations

import warnings

import mujoco
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envs.goal_env import DT_S, SUBSTEPS, GoalEnv, load_scene


def _bytes(observation):
    return {name: value.tobytes() for name, value in observation.items()}


def _episode(env, seed, steps=6):
    """Returns the bytes of all that an exploring episode shows."""
    rng = np.random.default_rng(seed)
    observation, info = env.reset(seed=seed)
    seen = [_bytes(observation), info["distance"]]
    for _ in range(steps):
        observation, reward, *_, info = env.step(env.unwrapped.explore(rng))
        seen += [_bytes(observation), reward, info["distance"], info["is_success"]]
    return seen


@pytest.mark.render
def test_gymnasium_has_nothing_to_complain_about(env):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped, skip_render_check=True)


@pytest.mark.render
def test_observations_have_the_documented_shapes_and_types(env):
    observation, info = env.reset(seed=3)
    assert {name: (value.shape, value.dtype.name) for name, value in observation.items()} == {
        "image": ((64, 64, 3), "uint8"),
        "state": ((4,), "float32"),
        "achieved_goal": ((2,), "float64"),
        "desired_goal": ((2,), "float64"),
        "goal_image": ((64, 64, 3), "uint8"),
    }
    assert set(info) == {"is_success", "distance"}
    assert env.action_space.shape == (2,)
    assert len(env.unwrapped.action_names) == len(env.unwrapped.action_units) == 2


@pytest.mark.render
def test_an_episode_ends_only_by_time_and_reports_distance_in_metres(env):
    observation, info = env.reset(seed=0)
    rng = np.random.default_rng(0)
    for step in range(1, env.spec.max_episode_steps + 1):
        observation, reward, terminated, truncated, info = env.step(env.unwrapped.explore(rng))
        assert not terminated
        assert truncated == (step == env.spec.max_episode_steps)
        distance = float(np.linalg.norm(observation["achieved_goal"] - observation["desired_goal"]))
        assert info["distance"] == pytest.approx(distance)
        assert reward == pytest.approx(-distance)
        assert info["is_success"] is (distance < env.unwrapped.success_distance)
        assert env.observation_space.contains(observation)


@pytest.mark.render
def test_an_episode_follows_from_its_seed_to_the_byte(env, make):
    twin = make(env.spec.id.split("/")[1].split("-")[0])
    assert _episode(env, 5) == _episode(twin, 5)
    assert _episode(env, 5) == _episode(twin, 5)  # nothing is left over from the episode before
    assert _episode(env, 6) != _episode(env, 5)


@pytest.mark.render
def test_unseeded_episodes_differ_and_follow_from_the_last_seed(env):
    env.reset(seed=1)
    first = env.reset()[0]
    second = env.reset()[0]
    assert not np.array_equal(first["desired_goal"], second["desired_goal"])
    env.reset(seed=1)
    assert _bytes(env.reset()[0]) == _bytes(first)


@pytest.mark.render
def test_the_goal_image_is_what_the_camera_shows_at_the_goal(env):
    task = env.unwrapped
    observation, _ = env.reset(seed=2)
    start, goal = task._draw_episode(np.random.default_rng(2))
    assert np.allclose(task._task_position(goal), observation["desired_goal"])
    task._place(task.data, goal)
    assert np.array_equal(task._observe()["image"], observation["goal_image"])
    task._place(task.data, start)
    assert np.array_equal(task._observe()["image"], observation["image"])
    assert task._info()["distance"] > task.success_distance


@pytest.mark.render
@pytest.mark.parametrize(("task", "view_m", "channel"), [("Reach", 0.57, 0), ("Wall", 1.08, 0), ("Push", 0.48, 2)])
def test_pictures_show_the_scored_body_where_the_positions_say(make, task, view_m, channel):
    env = make(task)
    for seed in range(5):
        observation, _ = env.reset(seed=seed)
        for _ in range(3):
            for image, position in (("image", "achieved_goal"), ("goal_image", "desired_goal")):
                x, y = observation[position]
                pixel = observation[image][int((0.5 - y / view_m) * 64), int((0.5 + x / view_m) * 64)].astype(int)
                assert pixel[channel] > pixel[2 - channel] + 80, (seed, image, pixel)
            observation, *_ = env.step(env.action_space.sample())


@pytest.mark.parametrize("task", ["Reach", "Wall", "Push"])
@pytest.mark.usefixtures("blind")
def test_no_goal_is_reached_at_the_start(make, task):
    env = make(task)
    distances = []
    for seed in range(200):
        _, info = env.reset(seed=seed)
        assert not info["is_success"], seed
        distances.append(info["distance"])
    assert min(distances) > 2 * env.unwrapped.success_distance
    assert len(set(distances)) == 200


@pytest.mark.usefixtures("blind")
def test_standing_still_does_not_succeed_and_moves_nothing(env):
    before, _ = env.reset(seed=11)
    for _ in range(5):
        after, _, _, _, info = env.step(np.zeros(2, np.float32))
    assert np.allclose(before["achieved_goal"], after["achieved_goal"], atol=1e-6)
    assert not info["is_success"]


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (np.zeros(3), r"action has shape \(3,\); it needs \[2\]"),
        (np.zeros((1, 2)), r"action has shape \(1, 2\)"),
        (np.array([]), r"action has shape \(0,\)"),
        (np.array([0.0, np.nan]), "action has values that are not finite"),
        (np.array([np.inf, 0.0]), "action has values that are not finite"),
        (np.array([0.0, -1.2]), r"action reaches 1.2; it must stay in \[-1, 1\]"),
        ("left", "action is not an array of numbers"),
        (None, r"action (has shape|is not an array)"),
    ],
)
@pytest.mark.usefixtures("blind")
def test_a_bad_action_is_refused_and_does_no_harm(env, action, message):
    env.reset(seed=0)
    before = env.unwrapped.data.qpos.copy()
    with pytest.raises(ValueError, match=message):
        env.unwrapped.step(action)
    assert np.array_equal(before, env.unwrapped.data.qpos)


@pytest.mark.usefixtures("blind")
def test_other_bad_arguments_are_refused(make):
    env = make("Wall")
    with pytest.raises(ValueError, match=r"options \['goal'\]; the tasks have none"):
        env.reset(options={"goal": 1})
    env.reset(seed=0)
    for size in (0, -3, 64.0, 5000):
        with pytest.raises(ValueError, match=r"size is .*; it needs a whole number of pixels"):
            env.unwrapped.render_pixels(size)
    with pytest.raises(ValueError, match="render_mode is 'human'"):
        type(env.unwrapped)(render_mode="human")
    for actions in (np.zeros((4, 2)), np.zeros((4, 3, 3)), np.zeros((0, 3, 2))):
        with pytest.raises(ValueError, match=r"actions has shape .*; it needs \[n, n, 2\]"):
            env.unwrapped.simulate(actions)
    with pytest.raises(ValueError, match="actions reaches 2"):
        env.unwrapped.simulate(np.full((4, 3, 2), 2.0))


@pytest.mark.usefixtures("blind")
def test_simulate_foretells_what_step_does(env):
    rng = np.random.default_rng(0)
    observation, _ = env.reset(seed=4)
    for _ in range(4):
        env.step(env.unwrapped.explore(rng))
    actions = rng.uniform(-1, 1, size=(5, 8, 2)).astype(np.float32)
    foretold = env.unwrapped.simulate(actions)
    assert foretold.shape == (5, 8, 2)
    for step in range(8):
        observation, *_ = env.step(actions[3, step])
        assert np.allclose(foretold[3, step], observation["achieved_goal"], atol=1e-9)


@pytest.mark.usefixtures("blind")
def test_simulate_leaves_the_episode_as_it_is(env):
    rng = np.random.default_rng(0)
    ends = []
    for peek in (False, True):
        env.reset(seed=8)
        for step in range(10):
            if peek:
                env.unwrapped.simulate(rng.uniform(-1, 1, size=(4, 3, 2)))
            observation, *_ = env.step(np.array([np.sin(step), np.cos(step)], np.float32))
        ends.append((observation["achieved_goal"].tobytes(), env.unwrapped.data.qvel.tobytes()))
    assert ends[0] == ends[1]


@pytest.mark.usefixtures("blind")
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**31), speed=st.floats(-1, 1), angle=st.floats(0, 6.3))
def test_any_action_keeps_the_observation_inside_its_space(env, seed, speed, angle):
    env.reset(seed=seed)
    action = (abs(speed) * np.array([np.cos(angle), np.sin(angle)])).astype(np.float32)
    for _ in range(15):
        observation, *_ = env.step(action)
        assert env.observation_space.contains(observation)


@pytest.mark.usefixtures("blind")
def test_a_state_is_almost_its_positions_alone(env):
    """The servos forget: starting from rest at the same positions leads to the same next positions."""
    task, rng, off = env.unwrapped, np.random.default_rng(3), []
    for seed in range(5):
        env.reset(seed=seed)
        for _ in range(20):
            action = task.explore(rng)
            at_rest = mujoco.MjData(task.model)
            at_rest.qpos[:] = task.data.qpos
            at_rest.ctrl[:] = action * task.full_speed
            mujoco.mj_step(task.model, at_rest, SUBSTEPS)
            env.step(action)
            off.append(np.abs(at_rest.qpos - task.data.qpos).max())
    assert np.median(off) < 0.0005
    assert np.percentile(off, 90) < 0.005


@pytest.mark.usefixtures("blind")
def test_exploration_is_in_bounds_reproducible_and_new_each_episode(env):
    def actions(seed):
        rng = np.random.default_rng(seed)
        episodes = []
        for episode in range(3):
            env.reset(seed=episode)
            taken = []
            for _ in range(12):
                taken.append(env.unwrapped.explore(rng))
                env.step(taken[-1])
            episodes.append(np.array(taken))
        return np.array(episodes)

    first = actions(0)
    assert first.dtype == np.float32
    assert np.abs(first).max() <= 1
    assert first.std() > 0.2
    assert np.array_equal(first, actions(0))
    assert not np.array_equal(first, actions(1))


@pytest.mark.render
def test_render_is_the_same_scene_in_a_larger_size(make):
    env = make("Push", render_mode="rgb_array", render_size=192)
    observation, _ = env.reset(seed=0)
    large = env.render()
    assert large.shape == (192, 192, 3)
    small = large.reshape(64, 3, 64, 3, 3).mean(axis=(1, 3))
    assert np.abs(small - observation["image"]).mean() < 3
    assert env.unwrapped.render_pixels(64).shape == (64, 64, 3)
    assert np.array_equal(env.unwrapped.render_pixels(64), observation["image"])


@pytest.mark.render
def test_an_environment_can_be_closed_twice_and_used_again(make):
    env = make("Reach")
    first, _ = env.reset(seed=0)
    env.unwrapped.render_pixels(96)
    env.unwrapped.simulate(np.zeros((1, 1, 2)))
    env.close()
    env.close()
    again, _ = env.reset(seed=0)
    assert np.array_equal(first["image"], again["image"])


@pytest.mark.parametrize("name", ["reach.xml", "wall.xml", "push.xml"])
def test_a_scene_steps_at_a_hundred_hertz_and_draws_cheaply(name):
    model = load_scene(name)
    assert model.opt.timestep * SUBSTEPS == pytest.approx(DT_S)
    assert GoalEnv.metadata["render_fps"] == round(1 / DT_S)
    assert model.vis.quality.offsamples == 0
    assert not model.light_castshadow.any()
    assert not model.opt.gravity.any()


@pytest.mark.render
def test_large_goal_picture_shows_the_goal(env):
    observation, _ = env.reset(seed=3)
    now = env.unwrapped.render_pixels(64).astype(float)
    goal = env.unwrapped.render_goal(64)
    env.step(np.ones(2, np.float32))
    assert np.abs(goal - observation["goal_image"].astype(float)).mean() < 1.0
    assert np.abs(now - observation["goal_image"]).mean() > 1.0
    np.testing.assert_array_equal(env.unwrapped.render_goal(64), goal)
