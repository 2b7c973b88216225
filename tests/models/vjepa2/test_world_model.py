"""V-JEPA 2-AC behind the protocol of world models, through the real runtime."""

from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from planning_worlds import solver_for
from torch.nn import functional
from vjepa2_worlds import picture, small_request, small_world

from mstar_plan.errors import ConfigError, InvalidInputError, LimitExceededError
from mstar_plan.models.vjepa2.config import ACPredictorConfig, EncoderConfig
from mstar_plan.models.vjepa2.pose import compute_new_pose
from mstar_plan.models.vjepa2.world_model import VJEPA2AC, VJEPA2ACConfig
from mstar_plan.models.weights import WeightsInfo, action_to_json, read_weights, save_weights
from mstar_plan.models.world_model import WorldModel
from mstar_plan.rollout.cem import CEMConfig
from mstar_plan.rollout.limits import PlanLimits
from mstar_plan.rollout.objective import ObjectiveConfig
from mstar_plan.types import Goal

PLANNER = CEMConfig(samples=40, iterations=2, horizon=3, elites=6, carry=3)
ENERGY = ObjectiveConfig(distance="l1", final=1.0, mean=0.0)


@torch.inference_mode()
def test_a_frame_is_doubled_and_encoded_alone():
    model = small_world()
    assert isinstance(model, WorldModel)
    frames = torch.from_numpy(np.stack([picture(0), picture(1)]))
    latents = model.encode(frames)
    assert latents.shape == (2, 16, 24)
    assert latents.mean(-1).abs().max() < 1e-5
    pixels = (frames[1].permute(2, 0, 1) / 255 - torch.tensor([0.485, 0.456, 0.406])[:, None, None]) / torch.tensor(
        [0.229, 0.224, 0.225]
    )[:, None, None]
    alone = model.encoder(torch.stack([pixels, pixels], 1)[None])
    assert torch.allclose(latents[1], functional.layer_norm(alone, (24,))[0], atol=1e-5)


@torch.inference_mode()
def test_poses_go_along_with_the_rollout():
    model = small_world()
    state, action = torch.rand(1, 7), 0.05 * torch.randn(1, 4, 2, 7)
    context = model.encode(torch.from_numpy(picture(0)[None]))[:, None]
    latent, poses, cache = model.begin(context, None, state, 4, 2)
    first, poses, cache = model.predict(latent, poses, action[:, :, 0], cache)
    assert torch.allclose(poses, compute_new_pose(state[:, None].expand(-1, 4, -1), action[:, :, 0]))
    second, *_ = model.predict(first, poses, action[:, :, 1], cache)
    whole = model.predictor(
        torch.cat([latent[0], first[0]], 1), action[0], torch.stack([state.expand(4, -1), poses[0]], 1)
    )
    assert torch.allclose(second[0], functional.layer_norm(whole[:, 16:], (24,)), atol=1e-5)


@pytest.mark.parametrize("frames", [1, 3])
def test_robots_share_calls_and_get_the_plans_that_they_would_get_alone(frames):
    requests = [small_request(seed, frames) for seed in range(4)]
    with solver_for(small_world(context_frames=frames), PLANNER, ENERGY) as solver:
        alone = [solver.solve(each) for each in requests]
        together = [future.result() for future in [solver.submit(each) for each in requests]]
    assert max(plan.timing.batch_size for plan in together) > 1
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_allclose(one.actions, other.actions, atol=1e-5)
        assert one.cost == pytest.approx(other.cost, abs=1e-5)


def test_a_plan_in_parts_is_the_plan_and_holds_what_was_allowed():
    model = small_world()
    with solver_for(model, PLANNER, ENERGY) as solver:
        whole = solver.solve(small_request())
    part = model.rollout_bytes(10, 3)
    assert part < model.rollout_bytes(40, 3)
    megabytes = -(-part // 2**20)
    grown = CEMConfig(samples=4000, iterations=2, horizon=3, elites=6, carry=3)
    assert model.rollout_bytes(4000, 3) > megabytes * 2**20
    with solver_for(model, grown, ENERGY, PlanLimits(max_memory_mb=megabytes)) as solver:
        parts = solver.solve(small_request())
        again = solver.solve(small_request().but(samples=40))
    assert parts.cost <= whole.cost + 1e-6
    np.testing.assert_allclose(again.actions, whole.actions, atol=1e-5)


def test_more_than_memory_allows_even_in_parts_is_refused():
    model = small_world()
    model.rollout_bytes = lambda candidates, horizon: candidates * horizon * 2**20
    with (
        solver_for(model, PLANNER, ENERGY, PlanLimits(max_memory_mb=2)) as solver,
        pytest.raises(LimitExceededError, match="one candidate of model 'small' over 3 steps holds 3 MiB"),
    ):
        solver.solve(small_request())


def test_what_the_model_needs_is_asked_for():
    nan = small_request().observation.state.copy()
    nan[2] = np.nan
    with solver_for(small_world(), PLANNER, ENERGY) as solver:
        with pytest.raises(InvalidInputError, match="NaN"):
            solver.solve(small_request().but(observation=small_request().observation.__class__(picture(0)[None], nan)))
        with pytest.raises(InvalidInputError, match=r"observation.state is missing"):
            solver.solve(small_request().but(observation=small_request().observation.__class__(picture(0)[None])))
        with pytest.raises(LimitExceededError, match="horizon is 9"):
            solver.solve(small_request().but(horizon=9))
        with pytest.raises(InvalidInputError, match=r"goal\.latent"):
            solver.solve(small_request().but(goal=Goal(latent=np.zeros((16, 23), np.float32))))


def test_models_without_a_state_see_pictures_alone():
    with solver_for(small_world(state="none"), PLANNER, ENERGY) as solver:
        assert solver.spec.state_size == 0
        assert np.isfinite(solver.solve(small_request()).cost)


def test_it_comes_back_from_a_weight_file(tmp_path):
    model = small_world()
    info = WeightsInfo("small", "vjepa2_ac", asdict(model.config), action_to_json(model.spec.action))
    save_weights(tmp_path / "m.safetensors", model.state_dict(), info, half=False)
    again = VJEPA2AC.from_weights(*read_weights(tmp_path / "m.safetensors"))
    frames = torch.from_numpy(picture(3)[None])
    assert torch.equal(again.encode(frames), model.encode(frames))
    assert again.config == model.config


def test_parts_that_do_not_fit_are_refused():
    with pytest.raises(ConfigError, match="do not fit"):
        VJEPA2ACConfig(EncoderConfig(embed_dim=64, num_heads=4), ACPredictorConfig(embed_dim=32))


def test_bfloat16_plans_from_pictures_and_from_latents_that_came_back():
    request = small_request(frames=2)
    with solver_for(small_world(context_frames=2), PLANNER, ENERGY) as solver:
        exact = solver.solve(request).cost
    with solver_for(small_world(context_frames=2).to(torch.bfloat16), PLANNER, ENERGY) as solver:
        found = solver.solve(replace(request, want_predicted=True))
        seen = request.observation.frames
        past = solver.encode(seen[0])
        again = replace(request, observation=replace(request.observation, frames=seen[1:]), context_latents=past[None])
        assert solver.solve(again).cost == pytest.approx(found.cost, rel=1e-3)
        aim = solver.encode(request.goal.frame)
        assert solver.solve(replace(request, goal=Goal(latent=aim))).cost == pytest.approx(found.cost, rel=1e-3)
    assert past.dtype == found.latent.dtype == found.predicted.dtype == np.float32
    assert found.cost == pytest.approx(exact, rel=0.05)
