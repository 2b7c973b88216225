"""The masked predictor; its numbers are in the recorded cases."""

import pytest
import torch

from mstar_plan.models.vjepa2.config import MaskedPredictorConfig
from mstar_plan.models.vjepa2.masked_predictor import VJEPA2MaskedPredictor

CONFIG = MaskedPredictorConfig(
    img_size=(32, 32), patch_size=8, num_frames=4, embed_dim=24, predictor_embed_dim=32, depth=2, num_heads=2,
    num_mask_tokens=2,
)  # fmt: skip


@pytest.fixture
def predictor():
    torch.manual_seed(0)
    made = VJEPA2MaskedPredictor(CONFIG).eval().requires_grad_(False)
    for parameter in made.parameters():
        parameter.add_(0.1 * torch.randn_like(parameter))
    return made


def test_the_order_of_context_and_targets_does_not_matter(predictor):
    ids = torch.randperm(32)
    context, shown, wanted = torch.randn(1, 12, 24), ids[None, :12], ids[None, 12:20]
    found = predictor(context, shown, wanted)
    order, back = torch.randperm(12), torch.randperm(8)
    again = predictor(context[:, order], shown[:, order], wanted[:, back])
    assert torch.allclose(again, found[:, back], atol=1e-5)


def test_mask_tokens_count_round(predictor):
    given = torch.randn(1, 4, 24), torch.arange(4)[None], torch.arange(4, 8)[None]
    assert torch.equal(predictor(*given, 3), predictor(*given, 1))
    assert not torch.allclose(predictor(*given, 0), predictor(*given, 1))
