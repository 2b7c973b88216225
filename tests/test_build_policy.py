"""A policy and a task's world model are wired as the configuration says."""

from __future__ import annotations

import pytest

from mstar_plan.build import build_env
from mstar_plan.build_policy import PolicyConfig, opened_policy
from mstar_plan.commands.evaluate import EvaluationConfig
from mstar_plan.config import load
from mstar_plan.errors import UnavailableError
from mstar_plan.evaluation.episode import run_episode
from mstar_plan.rollout.policy_controller import PolicyController
from mstar_plan.rollout.policy_solver import MODES


def config_of(*words):
    return load("evaluate", words, EvaluationConfig)


def test_words_reach_the_solver():
    config = config_of("env=push", "policy.proposals=5", "policy.iterations=3", "planner.elites=9")
    with opened_policy(config.env, config, config.policy, "refine") as solver:
        assert solver.config.proposals == 5
        assert (solver.defaults.horizon, solver.defaults.iterations, solver.defaults.samples) == (20, 3, 32)
        assert solver.runtime.graphs["push"].components["world.refit"].planner.config.elites == 9
        assert solver.spec.name == "push"


def test_a_task_without_a_policy():
    config = config_of("env=wall")
    with (
        pytest.raises(UnavailableError, match="mstar-plan train env=flow_wall"),
        opened_policy(config.env, config, config.policy, "rerank"),
    ):
        pass
    assert PolicyConfig(name="flow_reach").of(config.env) == "flow_reach"


@pytest.mark.render
@pytest.mark.slow
def test_judgement_makes_a_policy_better():
    """Fixed seeds, whole episodes of Push: the best of sixteen proposals solves clearly more than the first one."""
    config, solved = config_of("env=push"), dict.fromkeys(MODES, 0)
    for mode in MODES:
        with opened_policy(config.env, config, config.policy, mode) as solver:
            env = build_env(config.env)
            for seed in range(3000, 3012):
                solved[mode] += run_episode(env, PolicyController(solver), seed).success_last
            env.close()
    assert solved["rerank"] >= solved["policy"] + 2
    assert solved["refine"] >= solved["policy"] + 2
