"""Weight files: what goes in comes out, and everything that is not right is refused with its cause."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

from mstar_plan.errors import WeightsError
from mstar_plan.models import weights
from mstar_plan.models.jepa import JepaConfig
from mstar_plan.models.weights import (
    WeightsInfo,
    action_from_json,
    action_to_json,
    add_evaluation,
    config_from_json,
    load_state,
    read_info,
    read_weights,
    save_weights,
)
from mstar_plan.types import ActionSpec

LIMIT = np.array([1.0, 2.0])
ACTION = ActionSpec(low=-LIMIT, high=LIMIT, dt_s=0.05, names=("a", "b"), units=("m", "s"))
INFO = WeightsInfo("net", "jepa", {"latent": 3}, action_to_json(ACTION), "A net.", 7, "abc", {"lr": 0.1}, {"x": [1, 2]})


@pytest.fixture
def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))


@pytest.fixture
def file(tmp_path, net):
    path = tmp_path / "net.safetensors"
    save_weights(path, net.state_dict(), INFO)
    return path


def test_round_trip_is_float16_exact(file, net):
    info, tensors = read_weights(file)
    assert info == INFO
    assert read_info(file) == INFO
    assert tensors["0.weight"].dtype == torch.float32
    torch.testing.assert_close(tensors["0.weight"], net[0].weight.half().float())
    assert tensors["1.num_batches_tracked"].dtype == torch.int64
    load_state(net, tensors, info)
    assert not list(file.parent.glob("*.partial"))


def test_full_precision_is_kept_on_demand(tmp_path, net):
    path = tmp_path / "full.safetensors"
    save_weights(path, net.state_dict(), INFO, half=False)
    assert torch.equal(read_weights(path)[1]["0.weight"], net[0].weight)


def test_half_is_half_the_size(tmp_path):
    state = {"w": torch.randn(1000, 10)}
    for half, size in ((True, 20_000), (False, 40_000)):
        save_weights(tmp_path / "w.safetensors", state, INFO, half=half)
        assert size < (tmp_path / "w.safetensors").stat().st_size < size + 2000


def test_add_evaluation_keeps_all_else(file):
    before = read_weights(file)[1]
    add_evaluation(file, {"success_rate": 0.98})
    info, after = read_weights(file)
    assert info.evaluation == {"x": [1, 2], "success_rate": 0.98}
    assert info.training == INFO.training
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_action_round_trip():
    action = action_from_json(INFO)
    assert action.names == ("a", "b")
    assert action.dt_s == 0.05
    assert action.high.tolist() == [1.0, 2.0]
    with pytest.raises(WeightsError, match="action of 'net'"):
        action_from_json(WeightsInfo("net", "jepa", {}, {"low": [1], "high": [0], "dt_s": 1}))


def test_config_is_strict():
    assert config_from_json(JepaConfig, INFO) == JepaConfig(latent=3)
    with pytest.raises(WeightsError, match="did you mean 'width'"):
        config_from_json(JepaConfig, WeightsInfo("net", "jepa", {"widht": 3}))
    with pytest.raises(WeightsError, match="latent is -1"):
        config_from_json(JepaConfig, WeightsInfo("net", "jepa", {"latent": -1}))


@pytest.mark.parametrize("cut", [0, 4, 8, 100, -1])
def test_a_cut_file_is_refused_with_the_cure(file, cut):
    data = file.read_bytes()
    file.write_bytes(data[:cut])
    with pytest.raises(WeightsError, match=r"cut short; copy|not a safetensors file"):
        read_weights(file)


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    with pytest.raises(WeightsError, match="no weight file"):
        read_weights(path)
    path.write_bytes(b"\x80\x04 this is a pickle, or so it says" * 10)
    with pytest.raises(WeightsError, match="not a safetensors file"):
        read_weights(path)
    save_file({"w": torch.zeros(2)}, path)
    with pytest.raises(WeightsError, match="no format"):
        read_weights(path)
    save_file({"w": torch.zeros(2)}, path, metadata={"format": weights.FORMAT, "name": "x"})
    with pytest.raises(WeightsError, match="lacks metadata 'architecture'"):
        read_weights(path)


def test_metadata_that_is_not_json_is_refused(tmp_path, file):
    metadata = {"format": weights.FORMAT, "name": "x", "architecture": "jepa", "description": "", "data_hash": ""}
    rest = {key: json.dumps({}) for key in ("action", "training", "evaluation")}
    save_file({"w": torch.zeros(2)}, file, metadata={**metadata, **rest, "seed": "0", "config": "{oops"})
    with pytest.raises(WeightsError, match="'config' is not JSON"):
        read_info(file)


def test_a_large_file_is_refused_before_it_is_read(file, monkeypatch):
    monkeypatch.setattr(weights, "MAX_BYTES", 100)
    with pytest.raises(WeightsError, match="at most 100"):
        read_weights(file)


def test_values_that_are_not_finite_are_refused(tmp_path):
    path = tmp_path / "w.safetensors"
    for bad in (float("nan"), float("inf"), 1e6):
        with pytest.raises(WeightsError, match="w holds NaN, infinity or more"):
            save_weights(path, {"w": torch.tensor([bad])}, INFO)
    save_weights(path, {"w": torch.tensor([1e6])}, INFO, half=False)
    fields = {k: v if isinstance(v, str) else json.dumps(v) for k, v in vars(INFO).items()}
    metadata = {"format": weights.FORMAT, **fields}
    save_file({"w": torch.tensor([float("nan")])}, path, metadata=metadata)
    with pytest.raises(WeightsError, match="tensor w holds NaN"):
        read_weights(path)


def test_tensors_of_another_model_are_refused(file, net):
    info, tensors = read_weights(file)
    missing = {name: tensor for name, tensor in tensors.items() if name != "0.bias"}
    with pytest.raises(WeightsError, match=r"lack tensor 0\.bias"):
        load_state(net, missing, info)
    with pytest.raises(WeightsError, match=r"hold tensor 0\.wieght.*did you mean '0\.weight'"):
        load_state(net, {**tensors, "0.wieght": torch.zeros(1)}, info)
    with pytest.raises(WeightsError, match=r"0\.bias is \[5\].*\[3\]"):
        load_state(net, {**tensors, "0.bias": torch.zeros(5)}, info)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_the_dtype_is_kept_on_demand(tmp_path, net, dtype):
    path = tmp_path / "kept.safetensors"
    save_weights(path, {"w": net[0].weight.to(dtype)}, INFO, keep=True)
    assert read_weights(path, dtype=None)[1]["w"].dtype == dtype
    assert read_weights(path)[1]["w"].dtype == torch.float32
    add_evaluation(path, {"success_rate": 0.9})
    assert read_weights(path, dtype=None)[1]["w"].dtype == dtype


def test_what_a_dtype_cannot_hold_is_refused(tmp_path):
    path = tmp_path / "large.safetensors"
    save_weights(path, {"w": torch.full((3,), 1e6)}, INFO, half=False)
    with pytest.raises(WeightsError, match="w holds NaN or infinity"):
        read_weights(path, dtype=torch.float16)


def test_files_of_before_the_self_test_load(file):
    with safe_open(file, framework="pt") as stored:
        metadata = {name: text for name, text in stored.metadata().items() if name != "self_test"}
        tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118 - not a mapping
    save_file(tensors, file, metadata=metadata)
    assert read_info(file) == INFO


def test_an_empty_module_takes_the_tensors_themselves(file):
    info, tensors = read_weights(file)
    with torch.device("meta"):
        empty = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    load_state(empty, tensors, info)
    assert empty[0].weight.data_ptr() == tensors["0.weight"].data_ptr()


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path, net, monkeypatch):
    def fail(_: object, path: Path, metadata: object) -> None:
        path.write_text("half")
        raise OSError("disk full")

    monkeypatch.setattr(weights, "save_file", fail)
    with pytest.raises(WeightsError, match="disk full"):
        save_weights(tmp_path / "w.safetensors", net.state_dict(), INFO)
    assert not list(tmp_path.iterdir())
