"""Published configurations of before and after transformers 5, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from mstar_plan.errors import WeightsError
from mstar_plan.models.llama.config import LlamaConfig

PUBLISHED: dict[str, Any] = {
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "rms_norm_eps": 1e-5,
}
STRETCH = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}


def test_defaults_follow_the_published_ones() -> None:
    config = LlamaConfig.from_published(PUBLISHED)
    assert (config.num_key_value_heads, config.head_dim, config.rope_theta) == (4, 16, 10000.0)
    assert not config.tie_word_embeddings


@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
def test_both_ways_to_say_rope(key: str) -> None:
    rope = {"rope_type": "llama3", **STRETCH, **({"rope_theta": 5e5} if key == "rope_parameters" else {})}
    config = LlamaConfig.from_published({**PUBLISHED, "rope_theta": 5e5, key: rope})
    assert config.rope_theta == 5e5
    assert config.rope_scaling is not None
    assert config.rope_scaling.factor == 8.0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rope_scaling": {"type": "yarn"}}, "rope type is 'yarn'"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"num_key_value_heads": 3}, "multiple"),
        ({"head_dim": 15}, "even"),
        ({"vocab_size": 0}, "vocab_size is 0"),
        ({"hidden_size": None}, "lacks or garbles"),
        ({"rope_scaling": {"rope_type": "llama3"}}, "factor"),
        ({"rope_scaling": {"rope_type": "llama3", **STRETCH, "factor": float("nan")}}, "positive factor"),
        ({"rope_scaling": {"rope_type": "llama3", **STRETCH, "low_freq_factor": 4.0}}, "low below the high"),
        ({"rope_theta": float("inf")}, "rope_theta"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"num_hidden_layers": "many"}, "lacks or garbles"),
    ],
)
def test_mistakes(change: dict[str, Any], said: str) -> None:
    with pytest.raises(WeightsError, match=said):
        LlamaConfig.from_published({**PUBLISHED, **change})
