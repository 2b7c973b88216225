"""Sizes of SmolVLA: what the layers beside each other are, where sizes come from, and what does not fit."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from vla_files import case_config

from mstar_plan.errors import ConfigError, WeightsError
from mstar_plan.models.vla.siglip import SiglipConfig
from mstar_plan.models.vla.smolvla_config import PUBLISHED, SmolVLAConfig, smolvla_config

TINY = {"vision": SiglipConfig(16, 2, 2, 32, 32, 8), "shuffle": 2}


def test_published_sizes() -> None:
    config = smolvla_config({"num_vlm_layers": 16}, PUBLISHED["HuggingFaceTB/SmolVLM2-500M-Video-Instruct"])
    assert (config.width, config.expert_width, config.expert_hidden) == (960, 720, 2048)
    assert (config.layers, config.kv_width, config.vision.patches // config.shuffle**2) == (16, 320, 64)
    assert config == SmolVLAConfig(vision=config.vision)


def test_every_setting_of_a_case_is_read() -> None:
    case = case_config() | {"num_steps": 7, "prefix_length": 30, "self_attn_every_n_layers": 1, "max_action_dim": 9}
    case |= {"chunk_size": 11, "max_state_dim": 3, "min_period": 0.01, "max_period": 2.0, "attention_mode": "self_attn"}
    config = smolvla_config(case, case)
    assert (config.steps, config.prefix_length, config.self_every, config.action_width) == (7, 30, 1, 9)
    assert (config.chunk, config.state_width, config.min_period, config.max_period) == (11, 3, 0.01, 2.0)
    assert (config.mode, config.width, config.heads, config.kv_heads, config.head_width) == ("self_attn", 32, 4, 2, 8)
    assert (config.hidden, config.layers, config.vocabulary, config.eps) == (64, 4, 300, 1e-5)
    assert config.vision == SiglipConfig(16, 2, 2, 32, 32, 8)


def test_a_language_model_is_cut_to_its_first_layers() -> None:
    assert smolvla_config(case_config() | {"num_vlm_layers": 2}, case_config()).layers == 2
    assert smolvla_config(case_config() | {"num_vlm_layers": 0}, case_config()).layers == 4
    assert smolvla_config(case_config() | {"num_vlm_layers": 9}, case_config()).layers == 4


@pytest.mark.parametrize(
    ("settings", "own", "beside"),
    [
        ({}, [True, False, True, False], [0, 1, 2, 3]),
        ({"self_every": 3}, [True, False, False, True], [0, 1, 2, 3]),
        ({"self_every": 0}, [False] * 4, [0, 1, 2, 3]),
        ({"mode": "self_attn"}, [True] * 4, [0, 1, 2, 3]),
        ({"self_every": 0, "expert_layers": 2}, [False] * 4, [0, None, 1, None]),
        ({"self_every": 4, "expert_layers": 2}, [True, False, False, False], [0, None, 1, None]),
    ],
)
def test_which_layers_attend_to_what(settings: dict[str, Any], own: list[bool], beside: list[int | None]) -> None:
    config = SmolVLAConfig(**TINY, layers=4, **settings)
    assert [config.attends_itself(layer) for layer in range(4)] == own
    assert [config.expert_of(layer) for layer in range(4)] == beside


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"width": 0}, "width is 0"),
        ({"chunk": True}, "chunk is True"),
        ({"steps": 2.0}, "steps is 2.0"),
        ({"heads": 4, "kv_heads": 3}, "must divide"),
        ({"head_width": 7}, "be even"),
        ({"min_period": 5.0}, "the smaller"),
        ({"eps": 0.0}, "eps"),
        ({"expert_scale": 100.0}, "expert_scale"),
        ({"mode": "cross"}, "did you mean 'cross_attn'"),
        ({"shuffle": 3}, "squares of 3"),
        ({"width": 4, "expert_scale": 0.75}, "even width"),
        ({"layers": 4, "expert_layers": 3}, "do not divide among 3"),
        ({"layers": 4, "expert_layers": 2, "self_every": 1}, "has no layer of the expert"),
        ({"layers": 4, "expert_layers": 2, "self_every": 2}, "does not fit layer 2"),
    ],
)
def test_sizes_that_do_not_fit(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        SmolVLAConfig(**TINY | settings)


@pytest.mark.parametrize(
    ("part", "changes", "said"),
    [
        ("text_config", {"hidden_act": "gelu"}, "only 'silu'"),
        ("text_config", {"attention_bias": True}, "only False"),
        ("text_config", {"hidden_size": "32"}, "hidden_size is '32'"),
        ("vision_config", {"hidden_act": "relu"}, "only 'gelu_pytorch_tanh'"),
        ("vision_config", {"num_channels": 4}, "only 3"),
        ("vision_config", {"patch_size": None}, "patch_size is None"),
    ],
)
def test_language_models_that_are_refused(part: str, changes: dict[str, Any], said: str) -> None:
    case = copy.deepcopy(case_config())
    case[part] |= changes
    with pytest.raises(WeightsError, match=said):
        smolvla_config(case, case)


def test_marks_need_their_ids() -> None:
    case = case_config() | {"add_image_special_tokens": True}
    with pytest.raises(WeightsError, match="marks around pictures"):
        smolvla_config(case, case)
    assert smolvla_config(case, case, (7, 8)).image_marks == (7, 8)
    assert smolvla_config(case_config(), case, (7, 8)).image_marks is None
    with pytest.raises(WeightsError, match="lacks text_config"):
        smolvla_config(case, {"text_confg": {}})
