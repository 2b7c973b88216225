"""The action-conditioned predictor, whole sequences at once and step by step; its numbers are in the recorded cases."""

import pytest
import torch
from torch.nn import functional

from mstar_plan.errors import InvalidInputError
from mstar_plan.models.vjepa2.ac_predictor import ACPredictor, frame_causal_mask
from mstar_plan.models.vjepa2.config import ACPredictorConfig

CONFIG = ACPredictorConfig(
    img_size=(16, 24), patch_size=8, num_frames=16, embed_dim=20, predictor_embed_dim=32, depth=3, num_heads=2
)


@pytest.fixture(scope="module")
def predictor():
    torch.manual_seed(0)
    made = ACPredictor(CONFIG).eval().requires_grad_(False)
    for parameter in made.parameters():
        parameter.add_(0.05 * torch.randn_like(parameter))
    return made


def test_whole_sequences_and_steps_agree_and_gradients_flow(predictor):
    torch.manual_seed(1)
    context = functional.layer_norm(torch.randn(2, 3, CONFIG.tokens_per_frame, 20), (20,))
    tokens, actions, states = context.flatten(1, 2), torch.randn(2, 3, 7), torch.randn(2, 3, 7).requires_grad_()
    whole = predictor(tokens, actions, states)
    past, parts = (), []
    for t in range(3):
        predicted, past = predictor.step(context[:, t], actions[:, t], states[:, t], past)
        parts.append(predicted)
    assert (torch.cat(parts, 1) - whole).abs().max() < 1e-5
    parts[2].sum().backward()
    assert states.grad[:, 0].abs().max() > 0


def test_the_mask_shows_a_frame_itself_and_what_came_before():
    assert frame_causal_mask(2, 2).tolist() == [[True, True, False, False]] * 2 + [[True] * 4] * 2


@pytest.mark.parametrize(
    ("tokens", "actions", "states", "words"),
    [
        ((1, 12, 20), (1, 2, 6), (1, 2, 7), "actions has shape"),
        ((1, 12, 20), (1, 2, 7), (1, 3, 7), "states has shape"),
        ((1, 11, 20), (1, 2, 7), (1, 2, 7), "tokens has shape"),
        ((1, 54, 20), (1, 9, 7), (1, 9, 7), "takes 1..8"),
    ],
)
def test_shapes_that_do_not_fit_are_named(predictor, tokens, actions, states, words):
    with pytest.raises(InvalidInputError, match=words):
        predictor(torch.zeros(tokens), torch.zeros(actions), torch.zeros(states))


def test_extrinsics_are_asked_for_or_refused(predictor):
    given = torch.zeros(1, 6, 20), torch.zeros(1, 1, 7), torch.zeros(1, 1, 7)
    with pytest.raises(InvalidInputError, match="takes no extrinsics"):
        predictor(*given, torch.zeros(1, 1, 6))


def test_no_step_beyond_the_frames_that_it_was_built_for(predictor):
    past = [(torch.zeros(1, 2, 8 * CONFIG.sequence_per_frame, 16),) * 2] * 3
    with pytest.raises(InvalidInputError, match=r"takes 1\.\.8"):
        predictor.step(torch.zeros(1, 6, 20), torch.zeros(1, 7), torch.zeros(1, 7), past)
