"""Controllers are opened with what they need, and words that nobody could follow are refused."""

from __future__ import annotations

import pytest

from mstar_plan.build import build_env
from mstar_plan.commands.controllers import GOALS, open_controller
from mstar_plan.commands.evaluate import EvaluationConfig
from mstar_plan.config import load
from mstar_plan.errors import ConfigError
from mstar_plan.evaluation.baselines import RandomController
from mstar_plan.rollout.controller import PlanningController
from mstar_plan.rollout.controller_config import ControllerConfig


def opened(kind, words=(), address=""):
    config = load("evaluate", ["env=reach", *words], EvaluationConfig)
    return open_controller(kind, config.env, config, ControllerConfig(), words=words, address=address), config


@pytest.mark.render
@pytest.mark.parametrize(("kind", "type_"), [("local", PlanningController), ("random", RandomController)])
def test_what_is_made(kind, type_):
    context, config = opened(kind)
    env = build_env(config.env)
    with context as make:
        assert isinstance(make(env), type_)
    env.close()


def test_a_running_server_cannot_be_told_how_to_plan():
    context, _ = opened("grpc", ["planner.samples=64"], address="127.0.0.1:1")
    with pytest.raises(ConfigError, match="running already"), context:
        pass


def test_only_the_oracle_sees_the_true_goal():
    assert [kind for kind, goal in GOALS.items() if goal == "state"] == ["oracle"]
