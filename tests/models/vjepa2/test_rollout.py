from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from mstar_plan.errors import ConfigError
from mstar_plan.models.vjepa2.ac_predictor import ACPredictor
from mstar_plan.models.vjepa2.config import ACPredictorConfig
from mstar_plan.models.vjepa2.rollout import Rollout

CONFIG = ACPredictorConfig(
    img_size=(16, 24), patch_size=8, num_frames=16, embed_dim=20, predictor_embed_dim=32, depth=3, num_heads=2
)
B, K, H, A = 2, 5, 3, 7


@pytest.fixture(scope="module")
def predictor():
    torch.manual_seed(0)
    made = ACPredictor(CONFIG).eval().requires_grad_(False)
    for parameter in made.parameters():
        parameter.add_(0.05 * torch.randn_like(parameter))
    return made


def problem(context_frames, batch=B):
    torch.manual_seed(1)
    context = functional.layer_norm(torch.randn(batch, context_frames, CONFIG.tokens_per_frame, 20), (20,))
    actions, states = (torch.randn(batch, context_frames - 1, A) for _ in range(2))
    return context, actions, states, torch.randn(batch, K, H, A), torch.randn(batch, K, H, A)


def recomputed(predictor, context, past_actions, past_states, actions, states):
    """The same by whole sequences, nothing kept: [B K, H, N, D]."""
    many = [each[:, None].expand(-1, K, *each.shape[1:]).flatten(0, 1) for each in (context, past_actions, past_states)]
    frames, taken, seen = many
    predicted = []
    for h in range(actions.shape[2]):
        taken = torch.cat([taken, actions[:, :, h].flatten(0, 1)[:, None]], 1)
        seen = torch.cat([seen, states[:, :, h].flatten(0, 1)[:, None]], 1)
        new = predictor(frames.flatten(1, 2), taken, seen)[:, -CONFIG.tokens_per_frame :]
        new = functional.layer_norm(new, (20,))
        frames = torch.cat([frames, new[:, None]], 1)
        predicted.append(new)
    return torch.stack(predicted, 1)


def rolled_out(rollout, context, past_actions, past_states, actions, states, start=None):
    past = (None, None) if context.shape[1] == 1 else (past_actions, past_states)
    cache = start or rollout.begin(context, *past, actions.shape[1], H)
    latent, predicted = context[:, -1, None].expand(-1, actions.shape[1], -1, -1), []
    for h in range(actions.shape[2]):
        latent, cache = rollout.step(latent, actions[:, :, h], states[:, :, h], cache)
        predicted.append(latent.flatten(0, 1))
    return torch.stack(predicted, 1)


@pytest.mark.parametrize("rows", [1, 3, 64])
@pytest.mark.parametrize("context_frames", [1, 3])
@torch.inference_mode()
def test_it_equals_recomputing_whatever_the_chunks(predictor, context_frames, rows):
    given = problem(context_frames)
    found = rolled_out(Rollout(predictor, normalize=True, rows=rows), *given)
    assert (found - recomputed(predictor, *given)).abs().max() < 1e-5


@torch.inference_mode()
def test_where_attention_cannot_share_the_past_is_copied_to_the_same_effect(predictor, monkeypatch):
    given = problem(3)
    monkeypatch.setattr("mstar_plan.models.vjepa2.rollout.can_share", lambda device: False)
    found = rolled_out(Rollout(predictor, normalize=True, rows=4), *given)
    assert (found - recomputed(predictor, *given)).abs().max() < 1e-5


@torch.inference_mode()
def test_the_past_is_kept_once_for_all_candidates(predictor):
    context, actions, states, _, _ = problem(3, batch=1)
    cache = Rollout(predictor, normalize=True).begin(context, actions, states, 1000, H)
    keys, _ = cache.lanes[0].past
    assert keys.shape == (3, 2, 2 * CONFIG.sequence_per_frame, 16)
    assert cache.lanes[0].own is None  # nothing for the candidates before they are there


@torch.inference_mode()
def test_rolling_out_again_from_the_same_start_gives_the_same(predictor):
    given = problem(3)
    rollout = Rollout(predictor, normalize=True, rows=4)
    start = rollout.begin(given[0], given[1], given[2], K, H)
    first = rolled_out(rollout, *given, start=start)
    rolled_out(rollout, *given[:3], -given[3], given[4], start=start)
    assert torch.equal(rolled_out(rollout, *given, start=start), first)


@torch.inference_mode()
def test_one_step_for_one_frame_of_each_candidate(predictor):
    """A step may not look at more tokens than a frame has, whatever came before."""
    rows = []
    rollout = Rollout(predictor, normalize=True, rows=K)
    block = rollout.blocks[1]
    rollout.blocks[1] = lambda x, *rest: rows.append(x.shape) or block(x, *rest)
    given = problem(1, batch=1)
    rolled_out(rollout, *given)
    assert rows == [(K, CONFIG.sequence_per_frame, 32)] * H


@torch.inference_mode()
def test_missing_states_are_zeros(predictor):
    context, *_, actions, states = problem(1)
    rollout = Rollout(predictor, normalize=True)
    latent = context[:, -1, None].expand(-1, K, -1, -1)
    cache = rollout.begin(context, None, None, K, 1)
    nothing, _ = rollout.step(latent, actions[:, :, 0], None, cache)
    zeros, _ = rollout.step(latent, actions[:, :, 0], torch.zeros_like(states[:, :, 0]), cache)
    assert torch.equal(nothing, zeros)


@torch.inference_mode()
def test_bfloat16_is_near(predictor):
    given = problem(1)
    exact = rolled_out(Rollout(predictor, normalize=True), *given)
    half = ACPredictor(CONFIG).eval()
    half.load_state_dict(predictor.state_dict())
    found = rolled_out(Rollout(half.to(torch.bfloat16), normalize=True), *(each.to(torch.bfloat16) for each in given))
    assert found.dtype == torch.bfloat16
    assert (found.float() - exact).abs().mean() < 0.05


def test_predictors_that_need_extrinsics_are_refused():
    with pytest.raises(ConfigError, match="no camera extrinsics"):
        Rollout(ACPredictor(replace(CONFIG, use_extrinsics=True)), normalize=True)


def test_tuning_leaves_a_number_that_was_tried(predictor):
    rollout = Rollout(predictor, normalize=True, rows=7)
    rollout.tune()
    assert rollout.rows in [2**i for i in range(9)]
    assert len(rollout.blocks) == 3


@torch.inference_mode()
def test_nothing_is_kept_for_threads_that_come_and_go(predictor):
    """A caller may lend his thread to a plan: what a rollout kept for each of them would never be freed."""
    rollout = Rollout(predictor, normalize=True, rows=2)
    given = problem(1, batch=1)
    rolled_out(rollout, *given)
    assert not rollout._spaces
