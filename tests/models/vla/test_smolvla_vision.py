"""SmolVLM's eye: positions of pictures of any size, squares of patches, and a live comparison."""

from __future__ import annotations

import pytest
import torch

from mstar_plan.errors import InvalidInputError
from mstar_plan.models.vla.siglip import SiglipConfig
from mstar_plan.models.vla.smolvla_vision import SmolVLMVision, pixel_shuffle, position_ids

CONFIG = SiglipConfig(16, 2, 2, 32, 48, 8)


@pytest.mark.parametrize("side", [1, 2, 4, 8, 16, 32, 64])
def test_positions_of_the_trained_size_stand_in_order(side: int) -> None:
    assert torch.equal(position_ids(side, side), torch.arange(side * side))


def test_positions_of_other_sizes() -> None:
    assert position_ids(2, 4).tolist() == [0, 2, 8, 10]
    assert position_ids(4, 2).tolist() == [0, 0, 1, 1, 0, 0, 1, 1, 2, 2, 3, 3, 2, 2, 3, 3]


def test_squares_of_patches() -> None:
    z = torch.arange(16.0).view(1, 16, 1)
    assert pixel_shuffle(z, 2)[0].tolist() == [[0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]]


@pytest.mark.parametrize("size", [24, 48, 72])
def test_equals_transformers(size: int) -> None:
    smolvlm = pytest.importorskip("transformers.models.smolvlm.modeling_smolvlm")
    from transformers import SmolVLMConfig

    vision = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    vision |= {"image_size": 48, "patch_size": 8}
    text = {
        "model_type": "llama",
        "hidden_size": 24,
        "num_attention_heads": 2,
        "vocab_size": 50,
        "num_hidden_layers": 1,
    }
    config = SmolVLMConfig(text_config=text, vision_config=vision, scale_factor=3)
    torch.manual_seed(0)
    theirs = smolvlm.SmolVLMModel(config).eval()
    for parameter in theirs.parameters():
        parameter.data = torch.randn_like(parameter) * 0.3
    ours = SmolVLMVision(CONFIG, 3, 24)
    weights = theirs.state_dict()
    from mstar_plan.models.vla.siglip import siglip_names

    names = siglip_names(CONFIG, "vision_model.", "tower.")
    state = {mine: torch.cat([weights[each] for each in group]) for mine, group in names.items()}
    ours.load_state_dict(state | {"connector.weight": weights["connector.modality_projection.proj.weight"]})
    pixels = torch.rand(2, 3, size, size) * 2 - 1
    with torch.inference_mode():
        expected = theirs.connector(theirs.vision_model(pixel_values=pixels).last_hidden_state)
        assert torch.allclose(ours(pixels), expected, atol=1e-4, rtol=1e-4)
        assert ours.tokens_of(pixels) == expected.shape[1]


@pytest.mark.parametrize(
    "shape", [(1, 3, 48, 24), (1, 3, 40, 40), (1, 1, 48, 48), (3, 48, 48), (1, 3, 4, 4), (1, 3, 4800, 4800)]
)
def test_pictures_that_are_refused(shape: tuple[int, ...]) -> None:
    vision = SmolVLMVision(CONFIG, 3, 24)
    with pytest.raises(InvalidInputError, match="multiple of 24"):
        vision(torch.zeros(shape))
