"""One episode in a world whose answers are known: what the controller sees, what is kept, and what real time does."""

import numpy as np
import pytest

from mstar_plan.errors import InvalidInputError
from mstar_plan.evaluation.episode import EpisodeConfig, run_episode

ROUND_TRIP = [1, 1, 1, -1, -1, -1]  # reaches the goal at step 3 and leaves it again


def test_the_last_step_counts(line_env, scripted):
    result = run_episode(line_env, scripted(ROUND_TRIP), seed=0)
    assert result.success_any
    assert not result.success_last
    assert result.distances == pytest.approx([0.3, 0.2, 0.1, 0.0, 0.1, 0.2, 0.3], abs=1e-6)
    assert result.actions[:, 0].tolist() == ROUND_TRIP
    assert (result.steps, result.late_steps, result.dt_s) == (6, 0, 0.1)


def test_success_at_the_last_step(line_env, scripted):
    result = run_episode(line_env, scripted([1, 1, 1, 0, 0, 0]), seed=0)
    assert result.success_last
    assert result.final_distance == pytest.approx(0, abs=1e-6)


def test_environment_and_controller_get_the_seed(line_env, scripted):
    controller = scripted([0] * 6)
    assert run_episode(line_env, controller, seed=7).seed == 7
    assert (line_env.seeds, controller.seeds) == ([7], [7])


def test_the_controller_sees_pictures_and_step_numbers_alone(line_env, scripted):
    controller = scripted([1] * 6)
    run_episode(line_env, controller, seed=0)
    goal, seen = controller.goals[0], controller.observations
    assert goal.state is None
    assert goal.frame[0, 6, 0] == 250  # 0.3 m
    assert [o.seq for o in seen] == [0, 1, 2, 3, 4, 5]
    assert all(o.state is None and o.frames.shape == (1, 16, 16, 3) for o in seen)
    assert seen[2].frames[0, 0, 4, 0] == 250  # 0.2 m after two steps


def test_state_goal_and_proprioception_on_request(line_env, scripted):
    controller = scripted([1] * 6)
    run_episode(line_env, controller, seed=0, config=EpisodeConfig(goal="state", send_state=True))
    assert controller.goals[0].state == pytest.approx([0.3])
    assert controller.observations[2].state == pytest.approx([0.2])


def test_times_costs_and_statuses_of_plans(line_env, scripted, fake_clock):
    durations = [0.01, 0.02, 0.03, 0.04, 0.05, 0.06]
    controller = scripted([0] * 6, fake_clock, durations)
    result = run_episode(line_env, controller, seed=0, clock=fake_clock.clock)
    assert result.plan_ms == pytest.approx([10, 20, 30, 40, 50, 60])
    assert result.elapsed_s == pytest.approx(0.21)
    assert result.cost_histories[1] == (3.0, 1.9)
    assert result.statuses == ("complete",) * 6
    assert fake_clock.slept == []


def test_further_actions_of_one_plan_are_no_plans(line_env, scripted, fake_clock):
    controller = scripted([0] * 6, fake_clock, [0.03, 0, 0.05, 0, 0.07, 0], plan_every=2)
    result = run_episode(line_env, controller, 0, EpisodeConfig(record=True), clock=fake_clock.clock)
    assert result.plan_ms == pytest.approx([30, 50, 70])
    assert [step.plan is not None for step in result.recording.steps] == [True, False, True, False, True, False, False]


def test_controllers_without_plans_are_timed_at_every_step(line_env, scripted, fake_clock):
    controller = scripted([0] * 6, fake_clock, [0.01] * 6, plan_every=100)
    controller.act = lambda observation, act=controller.act: _without_plan(controller, act, observation)
    result = run_episode(line_env, controller, seed=0, clock=fake_clock.clock)
    assert len(result.plan_ms) == 6
    assert result.cost_histories == ()


def _without_plan(controller, act, observation):
    action = act(observation)
    controller.last_plan = None
    return action


def test_in_time_actions_start_every_step_on_the_clock(line_env, scripted, fake_clock):
    controller = scripted([1] * 6, fake_clock, [0.03] * 6)
    result = run_episode(line_env, controller, 0, EpisodeConfig(real_time=True), clock=fake_clock.clock)
    assert result.late_steps == 0
    assert fake_clock.slept == pytest.approx([0.07] * 6)
    assert result.elapsed_s == pytest.approx(0.6)


def test_the_world_goes_on_while_a_controller_is_late(line_env, scripted, fake_clock):
    # Step 0 in time; then 0.25 s: two steps pass under the first action before the second one is there.
    controller = scripted([1, -1, 0.5], fake_clock, [0.03, 0.25, 0.12])
    result = run_episode(line_env, controller, 0, EpisodeConfig(real_time=True, record=True), clock=fake_clock.clock)
    assert result.actions[:, 0].tolist() == [1, 1, 1, -1, -1, 0.5]
    assert result.late_steps == 3
    assert [o.seq for o in controller.observations] == [0, 1, 4]
    assert fake_clock.slept == pytest.approx([0.07, 0.05, 0.08])
    assert result.elapsed_s == pytest.approx(0.6)
    assert [step.plan is not None for step in result.recording.steps] == [True, True, False, False, True, False, False]


def test_before_the_first_action_the_robot_keeps_still_and_the_end_comes_while_waiting(line_env, scripted, fake_clock):
    controller = scripted([1], fake_clock, [9.0])
    result = run_episode(line_env, controller, 0, EpisodeConfig(real_time=True), clock=fake_clock.clock)
    assert result.actions[:, 0].tolist() == [0] * 6
    assert result.late_steps == 6


def test_a_recording_has_a_moment_more_than_steps(line_env, scripted):
    recording = run_episode(line_env, scripted([1] * 6), 0, EpisodeConfig(record=True)).recording
    assert len(recording.steps) == 7
    assert [s.distance for s in recording.steps[:4]] == pytest.approx([0.3, 0.2, 0.1, 0.0], abs=1e-6)
    assert recording.steps[2].frame[0, 4, 0] == 250
    assert recording.steps[2].picture is recording.steps[2].frame  # the world has no larger picture
    assert recording.goal_frame[0, 6, 0] == 250
    assert run_episode(line_env, scripted([1] * 6), 0).recording is None


def test_pictures_for_people_come_from_the_environment(line_env, scripted):
    line_env.render_pixels = lambda size: np.zeros((size, size, 3), np.uint8)
    line_env.render_goal = lambda size: np.ones((size, size, 3), np.uint8)
    recording = run_episode(line_env, scripted([1] * 6), 0, EpisodeConfig(record=True, picture_size=20)).recording
    assert recording.steps[0].picture.shape == (20, 20, 3)
    assert recording.goal_picture.max() == 1
    assert recording.goal_frame.shape == (16, 16, 3)


@pytest.mark.parametrize("key", ["image", "goal_image"])
def test_an_environment_without_pictures_is_refused(line_env, scripted, key):
    whole = line_env._observe
    line_env._observe = lambda: {k: v for k, v in whole().items() if k != key}
    with pytest.raises(InvalidInputError, match=f"no '{key}'"):
        run_episode(line_env, scripted([0] * 6), seed=0)


def test_an_environment_without_a_rate_is_refused(line_env, scripted):
    line_env.metadata = {}
    with pytest.raises(InvalidInputError, match="render_fps"):
        run_episode(line_env, scripted([0] * 6), seed=0)


def test_bad_settings_are_refused():
    with pytest.raises(InvalidInputError, match="'picture'"):
        EpisodeConfig(goal="picture")
    with pytest.raises(InvalidInputError, match="picture_size is 4"):
        EpisodeConfig(picture_size=4)
