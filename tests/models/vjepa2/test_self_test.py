"""The golden vector in a weight file: it passes for the model as saved, and says what was changed."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from vjepa2_worlds import small_world

from mstar_plan.errors import WeightsError
from mstar_plan.models.registry import load_model_file
from mstar_plan.models.vjepa2.self_test import project, test_picture
from mstar_plan.models.weights import WeightsInfo, action_to_json, read_info, read_weights, save_weights

PICTURE_SUM = 576882
PROJECTION = [-0.3162278, 6.0083276, -2.8460499, -4.110961]


@pytest.fixture
def file(tmp_path):
    model = small_world()
    info = WeightsInfo(
        "small", "vjepa2_ac", asdict(model.config), action_to_json(model.spec.action), self_test=model.digest()
    )
    path = tmp_path / "small.safetensors"
    save_weights(path, model.state_dict(), info, half=False)
    return path


def changed(path, **contract):
    """The file with another contract, as a mistaken edit would leave it."""
    info, tensors = read_weights(path)
    config = {**info.config, "contract": {**info.config["contract"], **contract}}
    save_weights(path, tensors, replace(info, config=config), half=False)
    return path


def test_a_model_as_it_was_saved_passes(file):
    recorded = read_info(file).self_test
    assert {name: len(value) for name, value in recorded.items() if name != "dtype"} == {
        "pixels": 16,
        "encoded": 16,
        "predicted": 16,
    }
    load_model_file(file)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_rounding_alone(file, dtype):
    info, tensors = read_weights(file)
    save_weights(file, {name: tensor.to(dtype) for name, tensor in tensors.items()}, info, keep=True)
    load_model_file(file, dtype=None)
    if dtype == torch.float16:
        record = {**info.self_test, "dtype": "float16"}
        save_weights(file, tensors, replace(info, self_test=record))
        load_model_file(file)


@pytest.mark.parametrize(
    "contract",
    [{"pixel_mean": (0.5, 0.5, 0.5)}, {"pixel_std": (0.25, 0.25, 0.25)}, {"pixel_mean": (0.406, 0.456, 0.485)}],
)
def test_other_preprocessing_is_named(file, contract):
    with pytest.raises(WeightsError, match=r"'small' fails its self-test.*preprocessing"):
        load_model_file(changed(file, **contract))
    load_model_file(file, self_test=False)


def test_a_forgotten_layer_norm_is_named(file):
    with pytest.raises(WeightsError, match=r"encoded.*normalize_latents"):
        load_model_file(changed(file, normalize_latents=False))


@pytest.mark.parametrize(
    ("tensor", "said"),
    [("encoder.blocks.1.mlp.fc2.weight", "encoder's weights"), ("predictor.predictor_proj.weight", "predictor's")],
)
def test_other_weights_are_named(file, tensor, said):
    info, tensors = read_weights(file)
    tensors[tensor] = tensors[tensor].flip(0)
    save_weights(file, tensors, info, half=False)
    with pytest.raises(WeightsError, match=said):
        load_model_file(file)


def test_files_without_one_load(file):
    info, tensors = read_weights(file)
    save_weights(file, tensors, replace(info, self_test={}), half=False)
    load_model_file(file)


@pytest.mark.parametrize("record", [{"dtype": "float32"}, {"dtype": "int3"}, {"dtype": "float32", "pixels": ["a"]}])
def test_a_damaged_record_is_refused(file, record):
    info, tensors = read_weights(file)
    save_weights(file, tensors, replace(info, self_test=record), half=False)
    with pytest.raises(WeightsError, match="self-test in the file of 'small' is damaged"):
        load_model_file(file)


def test_the_formulas_stay_what_they_are():
    """Recorded once; another version of NumPy or of this code must give the same."""
    picture = test_picture((32, 48))
    assert picture.shape == (32, 48, 3)
    assert picture.dtype == np.uint8
    assert int(picture.astype(np.int64).sum()) == PICTURE_SUM
    np.testing.assert_allclose(project(torch.arange(10.0))[:4], PROJECTION, rtol=1e-6)
