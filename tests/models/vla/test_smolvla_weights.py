"""Published tensors of SmolVLA: every one finds its place, and each wrong one is told by name."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from vla_files import GOLDEN, case_config, change_json, write_policy

from mstar_plan.errors import WeightsError
from mstar_plan.models.vla.lerobot_layout import read_policy
from mstar_plan.models.vla.smolvla_config import PUBLISHED, SmolVLAConfig, smolvla_config
from mstar_plan.models.vla.smolvla_weights import UNREAD, load_smolvla, read_smolvla_config, read_tokens

EXPERT = "vlm_with_expert.lm_expert.layers.1.self_attn.k_proj.weight"


def tiny() -> tuple[SmolVLAConfig, dict[str, Tensor]]:
    return smolvla_config(case_config(), case_config()), load_file(GOLDEN / "smolvla" / "weights.safetensors")


def test_every_place_gets_a_tensor() -> None:
    config, tensors = tiny()
    policy = load_smolvla(config, tensors)
    assert not any(each.is_meta or each.requires_grad for each in policy.parameters())
    assert not policy.training
    used = sum(each.numel() for each in policy.parameters())
    assert used == sum(tensor.numel() for name, tensor in tensors.items() if name not in UNREAD)
    assert load_smolvla(config, {n: t for n, t in tensors.items() if n not in UNREAD}).chunk == 5


def test_layers_may_be_of_half_precision() -> None:
    config, tensors = tiny()
    policy = load_smolvla(config, {name: tensor.bfloat16() for name, tensor in tensors.items()}, torch.bfloat16)
    assert policy.dtype == torch.bfloat16
    assert policy.action_in.weight.dtype == torch.float32


@pytest.mark.parametrize("name", [EXPERT, "action_time_mlp_in.weight", "state_proj.bias"])
def test_a_missing_tensor_is_named(name: str) -> None:
    config, tensors = tiny()
    del tensors[name]
    with pytest.raises(WeightsError, match=f"lack {name}"):
        load_smolvla(config, tensors)


def test_an_unknown_tensor_is_named_with_the_nearest() -> None:
    config, tensors = tiny()
    tensors["state_projj.bias"] = torch.ones(1)
    with pytest.raises(WeightsError, match=r"did you mean 'state_proj\.bias'"):
        load_smolvla(config, tensors)


@pytest.mark.parametrize("name", [EXPERT, "action_time_mlp_in.weight", "action_time_mlp_in.bias", "state_proj.weight"])
def test_a_tensor_of_another_shape_is_told(name: str) -> None:
    config, tensors = tiny()
    tensors[name] = tensors[name][:-1]
    with pytest.raises(WeightsError, match="do not belong together"):
        load_smolvla(config, tensors)


def test_a_folder_loads(tmp_path: Path) -> None:
    files = read_policy(write_policy(tmp_path))
    config = read_smolvla_config(files)
    assert config == tiny()[0]
    assert load_smolvla(config, files.tensors).steps == 4


def test_where_the_sizes_of_the_language_model_come_from(tmp_path: Path) -> None:
    (write_policy(tmp_path) / "vlm_config.json").unlink()
    with pytest.raises(WeightsError, match=r"put its configuration into vlm_config\.json"):
        read_smolvla_config(read_policy(tmp_path))
    change_json(tmp_path / "config.json", vlm_model_name=next(iter(PUBLISHED)), chunk_size=50)
    assert read_smolvla_config(read_policy(tmp_path)).width == 960


def test_marks_are_read_from_the_tokenizer(tmp_path: Path) -> None:
    change_json(write_policy(tmp_path) / "config.json", add_image_special_tokens=True)
    tokens = read_tokens(tmp_path / "tokenizer.json")
    marks = (tokens["<fake_token_around_image>"], tokens["<global-img>"])
    assert read_smolvla_config(read_policy(tmp_path)).image_marks == marks
    change_json(tmp_path / "tokenizer.json", added_tokens=[])
    with pytest.raises(WeightsError, match="lacks <fake_token_around_image>"):
        read_smolvla_config(read_policy(tmp_path))
    change_json(tmp_path / "tokenizer.json", added_tokens=[{"content": 3, "id": 4}])
    with pytest.raises(WeightsError, match="damaged added_tokens"):
        read_smolvla_config(read_policy(tmp_path))
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(WeightsError, match="tokenizer is not there"):
        read_smolvla_config(read_policy(tmp_path))
