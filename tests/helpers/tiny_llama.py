"""A tiny random Llama with a byte-level vocabulary, and what puts it on the writing engine."""

from __future__ import annotations

from dataclasses import replace

import torch
from tokenizers import pre_tokenizers
from torch import Tensor

from mstar_plan.models.llama.config import LlamaConfig
from mstar_plan.models.llama.decoder import LlamaDecoder
from mstar_plan.models.llama.vocabulary import BpeVocabulary
from mstar_plan.runtime.generation.kv_pool import KVPool, KVShape
from mstar_plan.runtime.generation.writer import Writer, WriterConfig

SPECIAL = ("<|end|>", "<|start|>")
END, START = 0, 1
CONFIG = LlamaConfig(
    vocab_size=258,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    max_position_embeddings=256,
)


def vocabulary(start: int | None = None, ends: tuple[int, ...] = (END,)) -> BpeVocabulary:
    """One token a byte, after the two special ones."""
    return BpeVocabulary.of(
        [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet())], [], SPECIAL, ends=ends, start=start
    )


def tensors(config: LlamaConfig = CONFIG, seed: int = 0) -> dict[str, Tensor]:
    """Random weights under published names."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator) * 0.3

    hidden, heads = config.hidden_size, config.num_attention_heads * config.head_dim
    groups = config.num_key_value_heads * config.head_dim
    made = {"model.embed_tokens.weight": draw(config.vocab_size, hidden), "model.norm.weight": 1 + draw(hidden)}
    for layer in range(config.num_hidden_layers):
        prefix = f"model.layers.{layer}"
        for name, rows in (("q", heads), ("k", groups), ("v", groups)):
            made[f"{prefix}.self_attn.{name}_proj.weight"] = draw(rows, hidden)
            if config.attention_bias:
                made[f"{prefix}.self_attn.{name}_proj.bias"] = draw(rows)
        made[f"{prefix}.self_attn.o_proj.weight"] = draw(hidden, heads)
        if config.attention_bias:
            made[f"{prefix}.self_attn.o_proj.bias"] = draw(hidden)
        for name in ("gate", "up"):
            made[f"{prefix}.mlp.{name}_proj.weight"] = draw(config.intermediate_size, hidden)
        made[f"{prefix}.mlp.down_proj.weight"] = draw(hidden, config.intermediate_size)
        for name in ("input_layernorm", "post_attention_layernorm"):
            made[f"{prefix}.{name}.weight"] = 1 + draw(hidden)
    if not config.tie_word_embeddings:
        made["lm_head.weight"] = draw(config.vocab_size, hidden)
    return made


def pool_of(config: LlamaConfig = CONFIG, tokens: int = 1024) -> KVPool:
    """Room for its keys and values."""
    return KVPool(KVShape(config.num_hidden_layers, config.num_key_value_heads, config.head_dim), tokens)


def writer(tokens: int = 1024, seed: int = 0, **settings: object) -> Writer:
    """The engine over a tiny model."""
    config = replace(WriterConfig(context=CONFIG.max_position_embeddings, wait_s=0.0), **settings)
    return Writer(LlamaDecoder(CONFIG, tensors(seed=seed)), pool_of(tokens=tokens), vocabulary(), config)
