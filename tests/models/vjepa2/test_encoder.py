"""The encoder; its numbers are in the recorded cases."""

import pytest
import torch

from mstar_plan.errors import InvalidInputError
from mstar_plan.models.vjepa2.config import EncoderConfig
from mstar_plan.models.vjepa2.encoder import VJEPA2Encoder

CONFIG = EncoderConfig(img_size=(16, 16), patch_size=8, num_frames=4, embed_dim=24, depth=2, num_heads=2)


@torch.inference_mode()
def test_all_tokens_kept_in_any_order_are_the_same_tokens():
    encoder = VJEPA2Encoder(CONFIG).eval()
    pixels = torch.randn(2, 3, 4, 16, 16)
    order = torch.randperm(8).expand(2, -1)
    whole, kept = encoder(pixels), encoder(pixels, order)
    assert torch.allclose(kept, whole[:, order[0]], atol=1e-6)


@torch.inference_mode()
def test_hidden_states_are_those_of_every_block():
    encoder = VJEPA2Encoder(CONFIG).eval()
    states = encoder.hidden_states(torch.randn(1, 3, 2, 16, 24))
    assert [tuple(state.shape) for state in states] == [(1, 6, 24)] * 4
    assert torch.equal(states[-1], encoder.norm(states[-2]))


@pytest.mark.parametrize(
    "shape", [(1, 3, 16, 16), (1, 1, 2, 16, 16), (1, 3, 3, 16, 16), (1, 3, 2, 16, 20), (1, 3, 0, 16, 16)]
)
def test_pixels_that_do_not_fit_are_refused(shape):
    with pytest.raises(InvalidInputError, match="pixels have shape"):
        VJEPA2Encoder(CONFIG)(torch.zeros(shape))
