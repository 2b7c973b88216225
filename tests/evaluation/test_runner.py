"""Seeds, order, progress and processes of an evaluation."""

from functools import partial

import gymnasium
import numpy as np
import pytest

from mstar_plan.build import build_baseline
from mstar_plan.errors import InvalidInputError
from mstar_plan.evaluation.baselines import RandomController
from mstar_plan.evaluation.episode import EpisodeConfig
from mstar_plan.evaluation.oracle import OracleConfig, OracleController
from mstar_plan.evaluation.runner import EvaluateConfig, evaluate


class Told:
    """Keeps what it is told."""

    def __init__(self):
        self.events = []

    def begin(self, label, episodes):
        self.events.append((label, episodes))

    def advance(self, result):
        self.events.append(result.seed)

    def end(self):
        self.events.append("end")


def test_episode_i_has_seed_plus_i_and_progress_hears_of_it(line_env, action):
    told = Told()
    config = EvaluateConfig(env="line", model="m", planner="cem", episodes=3, seed=40, settings={"horizon": 6})
    report = evaluate(lambda: line_env, lambda env: RandomController(action), config, told)
    assert line_env.seeds == [40, 41, 42] == [e.seed for e in report.episodes]
    assert told.events == [("line · m · cem", 3), 40, 41, 42, "end"]
    assert line_env.closed
    assert (report.env, report.model, report.planner, report.controller, report.seed) == (
        "line",
        "m",
        "cem",
        "local",
        40,
    )
    assert report.success_distance == 0.05
    assert report.settings == {"horizon": 6}
    assert report.machine["cores"] >= 1
    assert "numpy" in report.versions


def test_the_same_seed_gives_the_same_episodes(line_env, action):
    runs = [
        evaluate(lambda: line_env, lambda env: RandomController(action), EvaluateConfig(env="line", episodes=2, seed=s))
        for s in (3, 3, 4)
    ]
    actions = [np.stack([e.actions for e in run.episodes]) for run in runs]
    assert (actions[0] == actions[1]).all()
    assert (actions[0][1] == actions[2][0]).all()


def test_the_controller_is_made_with_the_environment_and_can_plan_in_it(line_env, action):
    config = EvaluateConfig(env="line", controller="oracle", episodes=2, episode=EpisodeConfig(goal="state"))
    small = OracleConfig(horizon=6, samples=40, elites=6, carry=4)
    report = evaluate(lambda: line_env, lambda env: OracleController(env, action, small), config)
    assert all(e.success_last for e in report.episodes)


def test_the_first_episodes_are_recorded(line_env, action):
    def run(**changes):
        config = EvaluateConfig(env="line", episodes=3, **changes)
        report = evaluate(lambda: line_env, lambda env: RandomController(action), config)
        return [e.recording is not None for e in report.episodes]

    assert run() == [True, False, False]
    assert run(record=0) == [False] * 3
    assert run(episode=EpisodeConfig(record=True)) == [True] * 3


def test_a_failure_closes_the_environment_and_ends_the_progress(line_env):
    told = Told()

    def broken(env):
        raise RuntimeError("no controller today")

    with pytest.raises(RuntimeError, match="no controller today"):
        evaluate(lambda: line_env, broken, EvaluateConfig(env="line"), told)
    assert line_env.closed
    assert told.events[-1] == "end"


@pytest.mark.parametrize("change", [{"episodes": 0}, {"processes": 0}, {"seed": -1}, {"record": -1}])
def test_bad_settings_are_refused(change):
    name, value = next(iter(change.items()))
    with pytest.raises(InvalidInputError, match=f"{name} is {value}"):
        EvaluateConfig(env="line", **change)


@pytest.mark.render
def test_processes_give_the_same_episodes_in_the_same_order():
    make_env, make_controller = partial(gymnasium.make, "envs:mstar/Reach-v0"), partial(build_baseline, "random")
    alone = evaluate(make_env, make_controller, EvaluateConfig(env="reach", episodes=3, seed=5))
    told = Told()
    both = evaluate(make_env, make_controller, EvaluateConfig(env="reach", episodes=3, seed=5, processes=2), told)
    assert [e.seed for e in both.episodes] == [5, 6, 7]
    assert sorted(told.events[1:-1]) == [5, 6, 7]
    for one, other in zip(alone.episodes, both.episodes, strict=True):
        assert np.allclose(one.distances, other.distances, atol=1e-6)
    assert both.machine["gl_renderer"]
    assert both.success_distance == 0.025
