"""The image tower: against transformers at random sizes, and sizes that do not fit."""

from __future__ import annotations

import pytest
import torch
from transformers import SiglipVisionConfig, SiglipVisionModel

from mstar_plan.errors import ConfigError, InvalidInputError
from mstar_plan.models.vla.siglip import SiglipConfig, SiglipTower, siglip_names


@pytest.mark.parametrize("sizes", [(24, 2, 3, 40, 30, 7), (16, 1, 1, 16, 28, 14)])
@torch.inference_mode()
def test_equals_transformers(sizes: tuple[int, ...]) -> None:
    config = SiglipConfig(*sizes)
    torch.manual_seed(0)
    published = SiglipVisionModel(
        SiglipVisionConfig(
            hidden_size=config.width, num_hidden_layers=config.depth, num_attention_heads=config.heads,
            intermediate_size=config.hidden, image_size=config.image_size, patch_size=config.patch_size,
            vision_use_head=False,
        )
    ).eval()  # fmt: skip
    for parameter in published.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    theirs = {name.removeprefix("vision_model."): tensor for name, tensor in published.state_dict().items()}
    tower = SiglipTower(config)
    names = siglip_names(config, "", "")
    assert {each for group in names.values() for each in group} == set(theirs)
    tower.load_state_dict({ours: torch.cat([theirs[each] for each in group]) for ours, group in names.items()})
    pixels = torch.rand(3, 3, config.image_size, config.image_size) * 2 - 1
    torch.testing.assert_close(tower(pixels), published(pixels).last_hidden_state, atol=1e-5, rtol=1e-5)


def test_images_of_another_size_are_refused() -> None:
    tower = SiglipTower(SiglipConfig(8, 1, 1, 8, 28, 14))
    with pytest.raises(InvalidInputError, match=r"\[3, 28, 28\]"):
        tower(torch.zeros(1, 3, 28, 27))


@pytest.mark.parametrize(
    ("sizes", "said"),
    [((8, 1, 3, 8, 28, 14), "3 heads"), ((8, 0, 1, 8, 28, 14), "depth"), ((8, 1, 1, 8, 12, 14), "larger than")],
)
def test_sizes_are_checked(sizes: tuple[int, ...], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        SiglipConfig(*sizes)
