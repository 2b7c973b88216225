"""Sizes of a Llama decoder, as published configurations and GGUF files state them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mstar_plan.errors import WeightsError


@dataclass(frozen=True)
class RopeScaling:
    """Llama 3's stretch of slow rotary frequencies (transformers calls it rope type "llama3").

    Attributes:
        factor: How much slow ones are stretched.
        low_freq_factor: Wavelengths above original / this are stretched in full.
        high_freq_factor: Wavelengths below original / this are left alone.
        original_max_position_embeddings: Positions that the model was first trained on.
    """

    factor: float
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position_embeddings: int = 8192

    def __post_init__(self) -> None:
        if not (0 < self.low_freq_factor < self.high_freq_factor < math.inf and 0 < self.factor < math.inf):
            raise WeightsError(
                f"rope scaling has factor {self.factor} and factors of frequency {self.low_freq_factor} to "
                f"{self.high_freq_factor}; it needs a positive factor, and the low below the high",
                field="rope_scaling",
            )


@dataclass(frozen=True)
class LlamaConfig:
    """Sizes of a decoder.

    Attributes:
        vocab_size: V.
        hidden_size: C.
        intermediate_size: F, of the gated layer.
        num_hidden_layers: L.
        num_attention_heads: H.
        num_key_value_heads: G.
        head_dim: D.
        max_position_embeddings: Longest context in tokens.
        rms_norm_eps: Epsilon of the norms.
        rope_theta: Base of the rotary frequencies.
        rope_scaling: Their stretch, or None.
        tie_word_embeddings: The head uses the embedding's weights.
        attention_bias: Query, key and value projections have biases; the output's may have one, too.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int = 2048
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10000.0
    rope_scaling: RopeScaling | None = None
    tie_word_embeddings: bool = True
    attention_bias: bool = False

    def __post_init__(self) -> None:
        sizes = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                 "num_key_value_heads", "head_dim", "max_position_embeddings")  # fmt: skip
        for name in sizes:
            if not 0 < getattr(self, name) < 2**24:
                raise WeightsError(f"{name} is {getattr(self, name)}; it needs at least 1", field=name)
        if self.num_attention_heads % self.num_key_value_heads or self.head_dim % 2:
            raise WeightsError(
                f"{self.num_attention_heads} heads over {self.num_key_value_heads} of keys and values, {self.head_dim} "
                "wide; the first must be a multiple of the second, and the width even",
                field="num_attention_heads",
            )
        if not (self.rms_norm_eps > 0 and self.rope_theta > 1 and math.isfinite(self.rope_theta)):
            raise WeightsError(f"rms_norm_eps {self.rms_norm_eps} or rope_theta {self.rope_theta} is no such number")

    @staticmethod
    def from_published(values: Mapping[str, Any]) -> LlamaConfig:
        """Reads a published `config.json` (transformers' names, of before and after its version 5).

        Raises:
            WeightsError: A size is missing, or something that is not supported here is asked for.
        """
        rope = values.get("rope_parameters") or values.get("rope_scaling") or {}
        kind = rope.get("rope_type", rope.get("type", "default"))
        if kind not in ("default", "llama3"):
            raise WeightsError(f"rope type is {kind!r}; known: default, llama3", field="rope_type")
        if values.get("hidden_act", "silu") != "silu" or values.get("mlp_bias", False):
            raise WeightsError("hidden_act other than silu and mlp_bias are not supported", field="hidden_act")
        try:
            heads = int(values["num_attention_heads"])
            return LlamaConfig(
                vocab_size=int(values["vocab_size"]),
                hidden_size=int(values["hidden_size"]),
                intermediate_size=int(values["intermediate_size"]),
                num_hidden_layers=int(values["num_hidden_layers"]),
                num_attention_heads=heads,
                num_key_value_heads=int(values.get("num_key_value_heads") or heads),
                head_dim=int(values.get("head_dim") or values["hidden_size"] // heads),
                max_position_embeddings=int(values.get("max_position_embeddings", 2048)),
                rms_norm_eps=float(values.get("rms_norm_eps", 1e-6)),
                rope_theta=float(rope.get("rope_theta", values.get("rope_theta", 10000.0))),
                rope_scaling=_scaling(rope) if kind == "llama3" else None,
                tie_word_embeddings=bool(values.get("tie_word_embeddings", False)),
                attention_bias=bool(values.get("attention_bias", False)),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise WeightsError(f"the Llama configuration lacks or garbles {error}", field="config") from error


def _scaling(rope: Mapping[str, Any]) -> RopeScaling:
    return RopeScaling(
        factor=float(rope["factor"]),
        low_freq_factor=float(rope["low_freq_factor"]),
        high_freq_factor=float(rope["high_freq_factor"]),
        original_max_position_embeddings=int(rope["original_max_position_embeddings"]),
    )
