"""Energies of grids of actions: the published ones, those of a world that is known, and grids that are refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from planning_worlds import Broken, Glider, Proprioceptive, Slow, request, solver_for

from mstar_plan.errors import ComponentError, InvalidInputError, LimitExceededError
from mstar_plan.evaluation.golden.case import load_case
from mstar_plan.evaluation.golden.cem_runs import ENERGY, check_grids, make_scene, pose_action
from mstar_plan.models.toy import ToyWorld
from mstar_plan.rollout.cem import CEMConfig
from mstar_plan.rollout.landscape import action_grid, survey
from mstar_plan.rollout.limits import PlanLimits
from mstar_plan.rollout.objective import ObjectiveConfig
from mstar_plan.rollout.vjepa2_cem import VJEPA2CEMConfig
from mstar_plan.types import ActionSpec, Goal, Observation, PlanRequest

CASE = load_case(Path(__file__).parents[1] / "golden" / "vjepa2_ac_cem")
TOY = ToyWorld().spec.action
START, GOAL = (-0.3, 0.1), (0.2, -0.2)


@torch.inference_mode()
def test_the_published_grid() -> None:
    found = list(check_grids(CASE))
    assert [each.tensor for each in found] == [
        "out.grid.actions", "out.grid.energies", "out.grid.poses", "out.grid2.energies",
    ]  # fmt: skip
    assert all(each.ok for each in found)


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize(("repeat", "name"), [(1, "out.grid.energies"), (2, "out.grid2.energies")])
def test_the_published_energies_through_the_runtime(repeat: int, name: str, deterministic: bool) -> None:
    scene = make_scene(CASE)
    action = pose_action(CASE.config["grid"]["grid_size"])
    scene.model.spec = replace(scene.model.spec, action=action)
    scene.model.encode = lambda frames: scene.context[0].expand(len(frames), -1, -1)
    asked = PlanRequest(
        Observation(np.zeros((1, *scene.model.spec.image_size, 3), np.uint8), scene.pose[0].numpy()),
        Goal(latent=scene.goal.reshape(scene.model.spec.latent_shape).numpy()),
        deterministic=deterministic,
    )
    grid = action_grid(action, (0, 1, 2), CASE.config["grid"]["nsamples"])
    with solver_for(scene.model, VJEPA2CEMConfig(), ENERGY) as solver:
        found = survey(solver, asked, grid.actions, repeat)
        one = survey(solver, asked.but(deterministic=False), grid.actions[:1], repeat)
    np.testing.assert_allclose(one, found[:1], atol=1e-6)
    np.testing.assert_allclose(found, CASE.io[name].numpy(), atol=1e-5, rtol=1e-4)


def test_the_lowest_action_of_a_known_world() -> None:
    grid = action_grid(TOY, (0, 1), 11)
    with solver_for(ToyWorld(), CEMConfig()) as solver:
        energies = survey(solver, request(START, GOAL), grid.actions, repeat=5)
    np.testing.assert_allclose(grid.actions[energies.argmin()], [1.0, -0.6], atol=1e-6)
    ends = np.array(START) + 0.5 * grid.actions
    np.testing.assert_allclose(energies, np.linalg.norm(ends - GOAL, axis=1), atol=0.011)  # eps rounds it off
    folded = grid.fold(energies)
    assert folded.shape == (11, 11)
    assert folded[10, 2] == energies.min()


def test_weights_and_penalties_of_the_objective_do_not_show() -> None:
    grid = action_grid(TOY, (0, 1), 5)
    objective = ObjectiveConfig(mean=0.3, minimum=2.0, action=5.0, change=1.0)
    with solver_for(ToyWorld(), CEMConfig(), objective) as weighted, solver_for(ToyWorld(), CEMConfig()) as plain:
        one, other = (survey(each, request(START, GOAL), grid.actions, 3) for each in (weighted, plain))
    np.testing.assert_array_equal(one, other)


def test_in_parts_it_is_the_same_and_as_many() -> None:
    world = ToyWorld()
    world.rollout_bytes = lambda candidates, horizon: candidates * horizon * 2**18
    grid = action_grid(TOY, (0, 1), 9)
    with solver_for(world, CEMConfig(), limits=PlanLimits(max_memory_mb=8)) as solver:
        parts = survey(solver, request(START, GOAL), grid.actions, 3)
    with solver_for(ToyWorld(), CEMConfig()) as solver:
        whole = survey(solver, request(START, GOAL), grid.actions, 3)
    assert parts.shape == (81,)
    np.testing.assert_allclose(parts, whole, atol=1e-6)


def test_context_and_state_are_given_to_the_model() -> None:
    still = np.zeros((1, 2), np.float32)
    asked = request(START, GOAL)
    frames = np.repeat(asked.observation.frames, 2, 0)
    with solver_for(Glider(), CEMConfig()) as solver:
        energies = survey(solver, asked.but(observation=Observation(frames), context_actions=still), [[1.0, -0.6]], 2)
    assert energies[0] == pytest.approx(np.hypot(0.25, 0.15), abs=0.01)  # 0.1 and then 0.15: half of a step goes on
    with solver_for(Proprioceptive(), CEMConfig()) as solver:
        felt = Observation(asked.observation.frames, np.array([0.5, -0.3], np.float32))
        energies = survey(solver, asked.but(observation=felt), [[0.0, 0.0]])
    assert energies[0] == pytest.approx(0.01, abs=5e-3)


def test_a_grid_covers_part_of_the_bounds_and_varies_the_last_axis_fastest() -> None:
    action = ActionSpec([-1, -2, 0], [3, 2, 1], 0.1)
    grid = action_grid(action, (1, 0), 3, span=0.5)
    assert grid.values.tolist() == [[-1, 0, 1], [0, 1, 2]]
    assert grid.actions.tolist()[:4] == [[0, -1, 0], [1, -1, 0], [2, -1, 0], [0, 0, 0]]
    assert grid.actions.shape == (9, 3)


@pytest.mark.parametrize(
    ("axes", "points", "span", "words"),
    [
        ((), 3, 1.0, "name each of 0..1 once"),
        ((0, 0), 3, 1.0, "name each of 0..1 once"),
        ((0, 2), 3, 1.0, "name each of 0..1 once"),
        ((0, 1), 1, 1.0, "at least 2 points"),
        ((0, 1), 65, 1.0, "make 4225 actions"),
        ((0, 1), 3, 1.5, "span is 1.5"),
    ],
)
def test_grids_that_are_refused(axes: tuple[int, ...], points: int, span: float, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        action_grid(TOY, axes, points, span)


def test_requests_that_are_refused() -> None:
    with solver_for(ToyWorld(), CEMConfig(), limits=PlanLimits(max_samples=8, max_horizon=4)) as solver:
        for actions, repeat, words in (
            ([[0.0, 0.0, 0.0]], 1, r"needs \[K, 2\]"),
            (np.zeros((0, 2)), 1, r"needs \[K, 2\]"),
            ([[0.0, np.nan]], 1, "NaN"),
            ([[0.0, 1.5]], 1, "0.5 outside the bounds"),
            ([[0.0, 0.5]], 0, "repeat is 0"),
        ):
            with pytest.raises(InvalidInputError, match=words):
                survey(solver, request(), actions, repeat)
        with pytest.raises(LimitExceededError, match="horizon is 5"):
            survey(solver, request(), np.zeros((2, 2)), 5)
        with pytest.raises(LimitExceededError, match="samples is 9"):
            survey(solver, request(), np.zeros((9, 2)))
    with solver_for(Broken(first_bad=1), CEMConfig()) as solver, pytest.raises(ComponentError, match="1 of 2 actions"):
        survey(solver, request(), np.zeros((2, 2)))
    with solver_for(Slow(), CEMConfig()) as solver:  # a held action is within any rate limit but that to the last one
        assert np.isfinite(survey(solver, request(), [[1.0, 1.0], [-0.5, -1.0]], 3)).all()
