"""The wiring: a configuration becomes models, one runtime, solvers that plan, and controllers."""

from __future__ import annotations

import os
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from vjepa2_worlds import small_world

from mstar_plan.build import (
    PlanningConfig,
    Task,
    action_spec,
    build_baseline,
    build_env,
    build_graph,
    build_model,
    build_planning,
    pick_threads,
    place,
    to_half,
    with_memory,
)
from mstar_plan.errors import ConfigError, InvalidInputError, NotFoundError, UnavailableError, WeightsError
from mstar_plan.models.toy import best_plan, render
from mstar_plan.rollout.cem import CEMConfig
from mstar_plan.rollout.limits import PlanLimits
from mstar_plan.rollout.mppi import MPPIConfig
from mstar_plan.rollout.objective import ObjectiveConfig
from mstar_plan.runtime.placement import Group, PlacementConfig
from mstar_plan.types import Goal, Observation, PlanRequest

TOY = Task("toy", "toy")
START, GOAL = np.array([-0.5, 0.1]), np.array([0.1, 0.0])


def config(**changes: object) -> PlanningConfig:
    planner = CEMConfig(samples=256, iterations=8, elites=16, horizon=8)
    parts = {"planner": planner, "objective": ObjectiveConfig(), "placement": PlacementConfig(), **changes}
    return PlanningConfig(**parts)  # type: ignore[arg-type]


def request() -> PlanRequest:
    return PlanRequest(observation=Observation(render(START)[None]), goal=Goal(frame=render(GOAL)), seed=1)


def test_a_wired_solver_finds_the_best_plan_of_the_known_world() -> None:
    with build_planning({"toy": (TOY, config())}) as planning:
        plan = planning.solvers["toy"].solve(request())
    best = best_plan(START, GOAL, 8)
    assert np.abs(plan.actions[:4, 0] - best[:4, 0]).max() < 0.15
    reached = START + 0.1 * plan.actions.sum(axis=0)
    assert np.abs(reached - GOAL).max() < 0.05


def test_models_share_a_runtime_but_not_their_planners() -> None:
    configs = {
        "a": (Task("a", "toy"), config()),
        "b": (Task("b", "toy"), config(planner=MPPIConfig(samples=32, iterations=2, elites=4, carry=2, horizon=5))),
    }
    with build_planning(configs) as planning:
        plans = {name: solver.solve(request()) for name, solver in planning.solvers.items()}
        assert planning.solvers["a"].runtime is planning.solvers["b"].runtime
    assert (len(plans["a"].actions), plans["a"].samples) == (8, 256)
    assert (len(plans["b"].actions), plans["b"].samples) == (5, 32)


def test_a_closed_planning_takes_no_more_requests() -> None:
    planning = build_planning({"toy": (TOY, config())})
    planning.close()
    with pytest.raises(UnavailableError):
        planning.solvers["toy"].solve(request())


def test_planning_takes_one_thread_unless_told() -> None:
    before = torch.get_num_threads()
    try:
        with build_planning({"toy": (TOY, config())}):
            assert torch.get_num_threads() == 1
        with build_planning({"toy": (TOY, config(threads=2))}):
            assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_placement_keeps_what_it_says_and_gets_the_rest() -> None:
    groups = {"main": Group(), "other": Group(device="meta", threads=3)}
    placed = place(PlacementConfig(groups, {"*": "main"}), "cpu", 1)
    assert placed.groups == {"main": Group("cpu", 1), "other": Group("meta", 3)}
    automatic = place(PlacementConfig(), "auto", 1).groups["main"].device
    assert automatic == ("cuda" if torch.cuda.is_available() else "cpu")


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no model"):
        build_planning({})
    with pytest.raises(NotFoundError, match="did you mean 'toy'"):
        build_model(Task("x", "toi"), config())
    with pytest.raises(WeightsError, match=r"absent\.safetensors"):
        build_model(TOY, config(weights=tmp_path / "absent.safetensors"))
    with pytest.raises(ConfigError, match="threads is -1"):
        config(threads=-1)
    with pytest.raises(InvalidInputError, match="device is 'gpu'"):
        build_planning({"toy": (TOY, config(device="gpu"))})


def test_the_graph_has_the_walks_of_planning() -> None:
    graph = build_graph(TOY, config())
    assert graph.name == "toy"
    assert {"plan", "encode", "rollout"} <= set(graph.walks)


def test_environments_come_from_tasks() -> None:
    with pytest.raises(ConfigError, match="task 'toy' has no environment"):
        build_env(TOY)
    with pytest.raises(ConfigError, match="envs:mstar/Reech-v0"):
        build_env(Task("reach", "reach", "envs:mstar/Reech-v0"))


@pytest.mark.render
@pytest.mark.parametrize("kind", ["random", "noop", "oracle"])
def test_baselines_act_within_bounds(kind: str) -> None:
    env = build_env(Task("reach", "reach", "envs:mstar/Reach-v0"))
    try:
        observation, _ = env.reset(seed=0)
        controller = build_baseline(kind, env)
        controller.reset(Goal(state=observation["desired_goal"]), seed=0)
        action = controller.act(Observation(observation["image"][None]))
        assert env.action_space.contains(action)
        assert bool(np.any(action)) is (kind != "noop")
        assert action_spec(env).dt_s == pytest.approx(0.1)
        assert len(action_spec(env).names) == 2
    finally:
        env.close()


def test_other_kinds_of_actions_are_refused() -> None:
    env = gymnasium.make("CartPole-v1")
    with pytest.raises(Exception, match="Box is needed"):
        action_spec(env)


def test_models_that_can_run_in_half_precision() -> None:
    with pytest.raises(ConfigError, match=r"model 'toy' runs in float32 alone"):
        build_model(TOY, config(dtype="bfloat16"))
    with pytest.raises(ConfigError, match="dtype is 'int8'"):
        config(dtype="int8")
    half = to_half(small_world())
    assert half.encode(torch.zeros(1, 32, 32, 3, dtype=torch.uint8)).dtype == torch.bfloat16
    assert pick_threads(half.spec) == len(os.sched_getaffinity(0))


def test_a_plan_may_hold_half_of_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mstar_plan.build.free_bytes", lambda device: 10 * 2**20)
    assert with_memory(PlanLimits(), "cpu").max_memory_mb == 5
    assert with_memory(PlanLimits(max_memory_mb=3), "cpu").max_memory_mb == 3
    monkeypatch.setattr("mstar_plan.build.free_bytes", lambda device: None)
    assert with_memory(PlanLimits(), "cpu").max_memory_mb == 0
