"""Published configurations: sizes in the three forms, and what is not computed here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mstar_plan.errors import ConfigError
from mstar_plan.models.vla.gemma import GemmaConfig
from mstar_plan.models.vla.pi_config import VARIANTS, PiConfig, read_pi_config

GOLDEN = Path(__file__).parents[2] / "golden"


def golden(name: str) -> dict:
    return json.loads((GOLDEN / name / "case.json").read_text())["config"]


def test_lerobots_defaults_are_the_published_sizes() -> None:
    config = read_pi_config("pi05", {"type": "pi05"})
    assert (config.language, config.expert) == (VARIANTS["gemma_2b"], VARIANTS["gemma_300m"])
    assert (config.vision.width, config.vision.depth, config.vision.patches) == (1152, 27, 256)
    assert (config.chunk, config.action_width, config.steps, config.exact_time) == (50, 32, 10, True)


def test_lerobots_keys_are_read() -> None:
    keys = {"chunk_size": 7, "max_action_dim": 9, "max_state_dim": 8, "num_inference_steps": 3, "min_period": 0.01}
    keys |= {"image_resolution": [448, 448], "action_expert_variant": "gemma_2b", "num_steps": 5}
    config = read_pi_config("pi0", keys)
    assert (config.chunk, config.action_width, config.state_width, config.steps) == (7, 9, 8, 3)
    assert (config.vision.image_size, config.min_period, config.expert.width) == (448, 0.01, 2048)
    assert read_pi_config("pi0", {"num_steps": 5}).steps == 5


def test_transformers_form_and_spelt_out_sizes() -> None:
    config = read_pi_config("pi0", golden("pi0"))
    assert config.language == GemmaConfig(32, 2, 64, 4, 1, 8)
    assert (config.vocabulary, config.exact_time) == (300, False)
    config = read_pi_config("pi05", golden("pi05"))
    assert (config.expert.width, config.vision.image_size, config.vocabulary, config.exact_time) == (16, 28, 300, True)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"paligemma_variant": "gemma_7b"}, "gemma_7b"),
        ({"image_resolution": [224, 448]}, "square"),
        ({"use_visual_memory": True}, "memory"),
        ({"chunk_size": 0}, "chunk"),
        ({"min_period": 5.0}, "periods"),
        ({"vlm_config": {}}, "lacks 'text_config'"),
        ({"paligemma": {"width": 1}}, "lacks"),
    ],
)
def test_what_is_not_computed_is_refused(changes: dict, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_pi_config("pi0", changes)


@pytest.mark.parametrize(
    ("part", "changes", "said"),
    [
        ("dit_config", {"hidden_act": "relu"}, "gelu_pytorch_tanh"),
        ("dit_config", {"num_hidden_layers": 3}, "depth"),
        ("dit_config", {"rope_parameters": {"rope_type": "llama3"}}, "rotary"),
        ("dit_config", {"head_dim": 16}, "head_width"),
        ("dit_config", {"hidden_size": 15}, "odd"),
    ],
)
def test_towers_that_cannot_attend_together_are_refused(part: str, changes: dict, said: str) -> None:
    config = golden("pi0")
    config[part] = config[part] | changes
    with pytest.raises(ConfigError, match=said):
        read_pi_config("pi0", config)


def test_another_kind_is_refused() -> None:
    with pytest.raises(ConfigError, match="pi0 or pi05"):
        PiConfig(kind="pi1")  # type: ignore[arg-type]
