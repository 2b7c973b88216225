"""What SmolVLA sees: order of padding and scaling, missing cameras, and states."""

from __future__ import annotations

import pytest
import torch

from mstar_plan.errors import InvalidInputError, WeightsError
from mstar_plan.models.vla.normalise import Normaliser
from mstar_plan.models.vla.preprocess import resize_with_pad
from mstar_plan.models.vla.smolvla_preprocess import picture_size, smolvla_images, smolvla_state


def test_sizes_are_the_other_way_round_in_the_config() -> None:
    assert picture_size({"resize_imgs_with_padding": [64, 32]}) == (32, 64)
    assert picture_size({}) == (512, 512)
    assert picture_size({"resize_imgs_with_padding": None}) is None
    for bad in ([64], [64, 0], [64, 1e3], [10**6, 64]):
        with pytest.raises(WeightsError, match="width, height"):
            picture_size({"resize_imgs_with_padding": bad})


def test_bytes_are_scaled_before_they_are_resized() -> None:
    picture = torch.randint(0, 256, (20, 30, 3), dtype=torch.uint8)
    images, there = smolvla_images([picture], (16, 16))
    floats = resize_with_pad(picture[None] / 255.0, 16, 16, rule="smolvla")[0].permute(2, 0, 1) * 2 - 1
    assert torch.equal(images[0, 0], floats)
    assert there.tolist() == [[True]]
    assert float(images[0, 0, :, 0].max()) == -1.0  # padding is black, not grey


def test_missing_cameras_are_black_and_not_there() -> None:
    picture = torch.rand(16, 16, 3)
    images, there = smolvla_images([None, picture, None], (16, 16))
    assert there.tolist() == [[False, True, False]]
    assert torch.equal(images[0, 0], -torch.ones(3, 16, 16))
    assert images.shape == (1, 3, 3, 16, 16)


def test_pictures_are_normalised_before_the_padding() -> None:
    double = Normaliser("mean_std", {"mean": torch.zeros(3, 1, 1), "std": torch.full((3, 1, 1), 0.5)})
    images, _ = smolvla_images([torch.full((8, 16, 3), 0.5)], (16, 16), double)
    assert float(images[0, 0, 0, 0, 0]) == -1.0
    assert float(images[0, 0, 0, -1, 0]) == pytest.approx(1.0)


@pytest.mark.parametrize("pictures", [[], [None], [torch.zeros(3, 8, 8)], [torch.zeros(8, 8, 3), torch.zeros(9, 9, 3)]])
def test_pictures_that_are_refused(pictures: list) -> None:
    with pytest.raises(InvalidInputError):
        smolvla_images(pictures, None)


def test_states() -> None:
    normaliser = Normaliser("min_max", {"min": torch.zeros(2), "max": torch.tensor([2.0, 4.0])})
    assert smolvla_state(torch.tensor([2.0, 1.0]), normaliser, 4).tolist() == [[1.0, -0.5, 0.0, 0.0]]
    for bad in (torch.tensor([1.0, torch.nan]), torch.zeros(1, 2), torch.zeros(3)):
        with pytest.raises(InvalidInputError):
            smolvla_state(bad, normaliser, 4)
