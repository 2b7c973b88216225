"""The oracle solves a world with a known answer, and the real tasks."""

import gymnasium
import numpy as np
import pytest

from mstar_plan.errors import InvalidInputError
from mstar_plan.evaluation.episode import EpisodeConfig, run_episode
from mstar_plan.evaluation.oracle import OracleConfig, OracleController
from mstar_plan.types import ActionSpec, Controller, Goal, Observation

OBSERVATION = Observation(frames=np.zeros((1, 4, 4, 3), np.uint8), seq=3)
SMALL = OracleConfig(horizon=6, samples=40, elites=6, carry=4)


def test_it_goes_to_the_goal_at_full_speed_and_stays(line_env, action):
    oracle = OracleController(line_env, action, SMALL)
    assert isinstance(oracle, Controller)
    result = run_episode(line_env, oracle, 0, EpisodeConfig(goal="state"))
    assert result.success_last
    assert result.actions[:2, 0] == pytest.approx([1, 1], abs=0.1)
    assert result.final_distance < 0.005


def test_its_plan_is_filled_in_and_its_cost_only_falls(line_env, action):
    line_env.reset(seed=0)
    oracle = OracleController(line_env, action, SMALL)
    oracle.reset(Goal(state=[0.3]), seed=9)
    first = oracle.act(OBSERVATION)
    plan = oracle.last_plan
    assert (plan.actions[0] == first).all()
    assert (plan.iterations, plan.samples, plan.seed, plan.observation_seq) == (4, 40, 9, 3)
    assert list(plan.cost_history) == sorted(plan.cost_history, reverse=True)
    assert plan.cost == plan.cost_history[-1]
    line_env.position += 0.1 * float(first[0])  # the best plan's cost is true, and a warm start is no worse
    oracle.act(OBSERVATION)
    assert oracle.last_plan.cost_history[0] < plan.cost_history[0]


def test_actions_follow_from_the_seed_and_stay_in_other_bounds(line_env):
    line_env.reset(seed=0)
    action = ActionSpec(low=[2.0], high=[3.0], dt_s=0.1)
    oracle = OracleController(line_env, action, SMALL)
    plans = []
    for seed in (1, 1, 2):
        oracle.reset(Goal(state=[5.0]), seed=seed)
        oracle.act(OBSERVATION)
        plans.append(oracle.last_plan.actions)
    assert (plans[0] == plans[1]).all()
    assert (plans[0] != plans[2]).any()
    assert plans[0].min() >= 2.0
    assert plans[0].max() <= 3.0


def test_a_goal_image_is_refused(line_env, action):
    oracle = OracleController(line_env, action)
    with pytest.raises(InvalidInputError, match="no goal"):
        oracle.act(OBSERVATION)
    with pytest.raises(InvalidInputError, match="goal='state'"):
        oracle.reset(Goal(frame=np.zeros((4, 4, 3), np.uint8)))


@pytest.mark.parametrize(
    "change", [{"samples": 0}, {"carry": 20}, {"elites": 64}, {"correlation": 1.0}, {"std": 0.001}]
)
def test_bad_settings_are_refused(change):
    with pytest.raises(InvalidInputError):
        OracleConfig(**change)


@pytest.mark.render
@pytest.mark.parametrize(("task", "seeds"), [("Reach", (1, 2)), ("Wall", (1,)), ("Push", (4,))])
def test_it_solves_the_real_tasks(task, seeds):
    env = gymnasium.make(f"envs:mstar/{task}-v0")
    space = env.action_space
    config = OracleConfig(horizon=12, samples=32, iterations=3, elites=8, carry=6)
    oracle = OracleController(env.unwrapped, ActionSpec(low=space.low, high=space.high, dt_s=0.1), config)
    for seed in seeds:
        assert run_episode(env, oracle, seed, EpisodeConfig(goal="state")).success_last
    env.close()
