"""The published planner: equal to its golden runs through the real runtime, and to its formulas in numpy."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from planning_worlds import Broken, Slow, request, solver_for

from mstar_plan.errors import ComponentError, ConfigError
from mstar_plan.evaluation.golden.case import load_case
from mstar_plan.evaluation.golden.cem_runs import ENERGY, check_runs, fed_noise, make_scene, pose_action, run_config
from mstar_plan.models.toy import ToyWorld
from mstar_plan.rollout.noise import white_noise
from mstar_plan.rollout.objective import ObjectiveConfig
from mstar_plan.rollout.plan_walk import plan_graph
from mstar_plan.rollout.planner import PlannerState, make_planner
from mstar_plan.rollout.solver import PlanSolver
from mstar_plan.rollout.vjepa2_cem import VJEPA2CEM, VJEPA2CEMConfig
from mstar_plan.runtime.runtime import Runtime
from mstar_plan.types import ActionSpec, Goal, Observation, PlanRequest, WarmStart

CASE = load_case(Path(__file__).parents[1] / "golden" / "vjepa2_ac_cem")
RUNS = CASE.config["runs"]
CPU = torch.device("cpu")
POSE = pose_action(0.075)
ZERO = torch.tensor([0])


def bound(action: ActionSpec = POSE, **settings: object) -> VJEPA2CEM:
    planner = make_planner(VJEPA2CEMConfig(**settings), action)
    assert isinstance(planner, VJEPA2CEM)
    return planner


def first_candidates(planner: VJEPA2CEM, samples: int = 400, horizon: int = 2, size: int = 7) -> torch.Tensor:
    state = planner.init((1, horizon, size), None, CPU)
    return planner.propose(state, ZERO, ZERO, samples)


@torch.inference_mode()
def test_every_iteration_equals_the_published_one() -> None:
    found = list(check_runs(CASE))
    assert [each for each in found if not each.ok] == []
    names = Counter(each.tensor.split(".")[-1] for each in found)
    assert names == Counter(
        dict.fromkeys(("actions", "poses", "energies", "elite_indices", "mean", "std", "action"), len(RUNS))
    )


@pytest.mark.parametrize("deterministic", [False, True], ids=["all at once", "in tiles"])
@pytest.mark.parametrize("run", RUNS, ids=lambda run: run["tag"])
def test_the_plan_is_the_published_one_through_the_runtime(run: dict, deterministic: bool) -> None:
    scene = make_scene(CASE)
    config = run_config(run)
    action = pose_action(0.075)
    scene.model.spec = replace(scene.model.spec, action=action)
    scene.model.encode = lambda frames: scene.context[0].expand(len(frames), -1, -1)
    planner = VJEPA2CEM(config, action, fed_noise(CASE.io[f"out.{run['tag']}.noise"], config.horizon))
    asked = PlanRequest(
        Observation(np.zeros((1, *scene.model.spec.image_size, 3), np.uint8), scene.pose[0].numpy()),
        Goal(latent=scene.goal.reshape(scene.model.spec.latent_shape).numpy()),
        deterministic=deterministic,
    )
    with Runtime(plan_graph(scene.model, planner, ENERGY)) as runtime:
        plan = PlanSolver(scene.model.spec, runtime, config).solve(asked)
    expected = CASE.io[f"out.{run['tag']}.action"].numpy()
    np.testing.assert_allclose(plan.actions, expected, atol=1e-5, rtol=1e-4)
    std = CASE.io[f"out.{run['tag']}.std"][-1].numpy()
    np.testing.assert_allclose(plan.std[:, [0, 1, 2, 6]], std, atol=1e-5, rtol=1e-4)
    lowest = CASE.io[f"out.{run['tag']}.energies"].amin(1).numpy()
    np.testing.assert_allclose(plan.cost_history, np.minimum.accumulate(lowest), atol=1e-5)
    with torch.inference_mode():
        own = scene.roll_out(torch.from_numpy(plan.actions)[None, None])[0][:, 0, -1]
    assert plan.cost == pytest.approx(float((own - scene.goal).abs().mean()), abs=1e-6)


def test_refit_matches_numpy() -> None:
    random = np.random.default_rng(0)
    planner = bound(elites=4, momentum_mean=0.3, momentum_std=0.6, momentum_mean_gripper=0.1, momentum_std_gripper=0.9)
    mean, std = random.normal(size=(2, 2, 7)), random.random((2, 2, 7))
    candidates, costs = random.normal(size=(2, 20, 2, 7)), random.random((2, 20))
    old = PlannerState(*(torch.from_numpy(x.astype(np.float32)) for x in (mean, std)), torch.zeros(2, 0, 2, 7))
    new = planner.refit(old, torch.from_numpy(candidates.astype(np.float32)), torch.from_numpy(costs))
    m, m_s = np.full(7, 0.3), np.full(7, 0.6)
    m[6], m_s[6] = 0.1, 0.9
    for b in range(2):
        elites = candidates[b][np.argsort(costs[b])[:4]]
        np.testing.assert_allclose(new.mean[b], m * mean[b] + (1 - m) * elites.mean(0), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(new.std[b], m_s * std[b] + (1 - m_s) * elites.std(0, ddof=1), rtol=1e-5, atol=1e-6)
    assert new.elites.shape == (2, 0, 2, 7)


def test_translations_and_gripper_are_clipped_and_rotations_stay_zero() -> None:
    actions = first_candidates(bound(maxnorm=0.05))[0] * torch.from_numpy(POSE.high)
    assert (actions[..., 3:6] == 0).all()
    assert actions[..., :3].abs().amax() == pytest.approx(0.05)
    assert actions[..., 6].abs().amax() == 0.75
    inside = actions[..., :3][actions[..., :3].abs() < 0.0499]
    assert 0.6 < len(inside) / (400 * 2 * 3) < 0.75, "one standard deviation is inside"


def test_coordinates_can_be_pinned_and_the_gripper_closed() -> None:
    planner = bound(fixed=((1, 0.06), (3, -0.9)), close_gripper=1)
    actions = first_candidates(planner)[0] * torch.from_numpy(POSE.high)
    torch.testing.assert_close(actions[..., 1], torch.full((400, 2), 0.06))  # over maxnorm, as published
    assert (actions[:, 0, 6] == -0.9).all()
    assert (actions[:, 1, 6] == 1.0).all()
    mean = planner.init((1, 2, 7), None, CPU).mean[0] * torch.from_numpy(POSE.high)
    torch.testing.assert_close(mean[:, 1], torch.full((2,), 0.06))


def test_small_gripper_actions_of_the_plan_become_zero() -> None:
    planner = bound()
    mean = torch.full((1, 3, 7), 0.1)
    mean[0, :, 6] = torch.tensor([0.2499, -0.2499, -0.26])
    found = planner.answer(PlannerState(mean, mean, mean[:, None][:, :0]))
    assert found[0, :, 6].tolist() == pytest.approx([0.0, 0.0, -0.26])
    assert (found[..., :6] == mean[..., :6]).all()


def test_bounds_that_are_not_centred_change_nothing_in_metres() -> None:
    low, high = POSE.low.copy(), POSE.high.copy()
    low[0], high[0], low[6], high[6] = -0.2, 0.06, -0.8, 1.4
    shifted = ActionSpec(low, high, 0.25, units=POSE.units)
    ours, theirs = first_candidates(bound(shifted))[0], first_candidates(bound())[0]
    centre, half = torch.from_numpy((low + high) / 2), torch.from_numpy((high - low) / 2)
    torch.testing.assert_close(centre + half * ours, torch.from_numpy(POSE.high) * theirs, atol=1e-6, rtol=0)
    state = bound(shifted).init((1, 2, 7), None, CPU)
    torch.testing.assert_close(centre + half * bound(shifted).answer(state)[0], torch.zeros(2, 7), atol=1e-6, rtol=0)


def test_other_actions_are_sampled_like_translations_within_their_bounds() -> None:
    with solver_for(ToyWorld(), VJEPA2CEMConfig(horizon=5), ENERGY) as solver:
        plan = solver.solve(request((-0.3, 0.1), (0.2, -0.2)))
    np.testing.assert_allclose(0.1 * plan.actions.sum(0), [0.5, -0.3], atol=0.02)
    candidates = first_candidates(VJEPA2CEM(VJEPA2CEMConfig(std=0.5)), 4000, size=3)
    assert candidates.shape == (1, 4000, 2, 3)
    assert candidates.abs().max() == 1.0
    assert 0.45 < candidates.std() < 0.5


def test_the_noise_is_asked_for_sampled_dimensions_alone() -> None:
    asked = []

    def noise(config: object, seed: torch.Tensor, iteration: torch.Tensor, shape: tuple) -> torch.Tensor:
        asked.append((config, seed.tolist(), iteration.tolist(), shape))
        return torch.ones(1, *shape)

    planner = VJEPA2CEM(VJEPA2CEMConfig(), POSE, noise)
    found = first_candidates(planner, 30) * torch.from_numpy(POSE.high)
    assert asked == [(VJEPA2CEMConfig().noise, [0], [0], (30, 2, 4))]
    torch.testing.assert_close(found[0, 0, 0], torch.tensor([0.05, 0.05, 0.05, 0, 0, 0, 0.75]))
    assert planner.bind(pose_action(0.1)).noise is noise
    drawn = first_candidates(bound(), 5)[0, :, :, 0] * 0.075
    expected = (0.05 * white_noise(0, 0, (5, 4, 2))[:, 0]).clamp(-0.05, 0.05)
    torch.testing.assert_close(drawn, expected)


def test_the_cost_is_that_of_the_plan_and_not_of_the_best_candidate() -> None:
    world = ToyWorld()
    with solver_for(world, VJEPA2CEMConfig(iterations=1, samples=40), ObjectiveConfig(eps=0)) as solver:
        plan = solver.solve(request((-0.3, 0.1), (0.2, -0.2)))
    along = [-0.3, 0.1] + 0.1 * np.cumsum(plan.actions, 0)
    assert plan.cost == pytest.approx(np.linalg.norm(along - [0.2, -0.2], axis=1).mean(), abs=2e-3)
    assert plan.cost > plan.cost_history[-1], "the mean of ten candidates is no better than the best of forty"


def test_plans_keep_the_limits_of_a_robot() -> None:
    with solver_for(Slow(), VJEPA2CEMConfig(horizon=4, std=1.5)) as solver:
        last = np.array([[0.9, -0.9]], np.float32)
        plan = solver.solve(request().but(context_actions=last))
    assert np.abs(np.diff(np.concatenate([last, plan.actions]), axis=0)).max(0).tolist() <= [0.2001, 0.5001]


def test_a_warm_start_changes_nothing_and_none_is_carried() -> None:
    with solver_for(ToyWorld(), VJEPA2CEMConfig()) as solver:
        fresh = solver.solve(request())
        warm = WarmStart(np.full((2, 2), 0.9), np.zeros((3, 2, 2)))
        again = solver.solve(request().but(warm_start=warm))
    np.testing.assert_array_equal(fresh.actions, again.actions)
    np.testing.assert_allclose(fresh.warm_start.mean, fresh.actions)
    assert fresh.warm_start.elites.shape == (0, 2, 2)


def test_requests_that_share_calls_get_the_plans_that_they_would_get_alone() -> None:
    requests = [request(seed=seed) for seed in range(4)]
    with solver_for(ToyWorld(), VJEPA2CEMConfig(samples=60, iterations=3)) as solver:
        alone = [solver.solve(each) for each in requests]
        together = [future.result() for future in [solver.submit(each) for each in requests]]
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_allclose(one.actions, other.actions, atol=1e-5)
        assert one.cost == pytest.approx(other.cost, abs=1e-5)


def test_failed_rollouts() -> None:
    with solver_for(Broken(first_bad=30), VJEPA2CEMConfig(iterations=3)) as solver:
        assert np.isfinite(solver.solve(request()).cost)
    with solver_for(Broken(), VJEPA2CEMConfig(iterations=3)) as solver, pytest.raises(ComponentError) as error:
        solver.solve(request())
    assert error.value.details["cause"] == "NON_FINITE_COST"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"carry": 2}, "has no carry"),
        ({"zero_candidate": True}, "planner=cem has"),
        ({"elites": 1}, "unbiased spread needs at least 2"),
        ({"momentum_std_gripper": 1.0}, "momentum_std_gripper is 1"),
        ({"maxnorm": 0.0}, "maxnorm is 0.0"),
        ({"gripper_clip": float("nan")}, "gripper_clip is nan"),
        ({"round_gripper": -0.1}, "round_gripper is -0.1"),
        ({"close_gripper": -1}, "close_gripper is -1"),
        ({"fixed": ((1, 0.0), (1, 0.1))}, "pins a dimension twice"),
    ],
)
def test_settings_that_contradict_are_refused(settings: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as error:
        VJEPA2CEMConfig(**settings)
    assert error.value.field in (None, "", *settings)


@pytest.mark.parametrize(
    ("settings", "action", "words"),
    [
        ({"maxnorm": 0.08}, POSE, r"planner.maxnorm asks for 0.08 of a0, whose bounds are -0.075..0.075 m"),
        ({"gripper_clip": 1.1}, POSE, "gripper_clip asks for 1.1"),
        ({"fixed": ((2, -0.1),)}, POSE, "fixed asks for -0.1 of a2"),
        ({"fixed": ((4, 0.0),)}, POSE, r"pins 4; it needs 0\.\.3"),
        ({"fixed": ((2, 0.0),)}, ToyWorld().spec.action, r"pins 2; it needs 0\.\.1"),
        ({"close_gripper": 1}, ToyWorld().spec.action, "there is no gripper to close"),
    ],
)
def test_settings_that_do_not_fit_the_actions_are_refused(settings: dict, action: ActionSpec, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        bound(action, **settings)
