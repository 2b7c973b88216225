"""Reads Llama models from GGUF files (the format of llama.cpp): sizes, weights, tokenizer and chat template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from torch import Tensor

from mstar_plan.errors import WeightsError
from mstar_plan.models.llama.config import LlamaConfig
from mstar_plan.models.llama.vocabulary import BpeVocabulary

MAX_BYTES = 16 * 2**30
MAX_VOCABULARY = 2**20
MIN_BYTES = 24  # magic, version and the two counts
CONTROL = 3  # token type of special tokens
PIECES = {"smollm": True, "gpt-2": False, "default": False}  # pre-tokenizer: does it split digits apart

# Names of llama.cpp -> published names; {} is the layer.
_NAMES: Mapping[str, str] = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER_NAMES: Mapping[str, str] = {
    "attn_norm.weight": "input_layernorm.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "attn_q.weight": "self_attn.q_proj.weight",
    "attn_k.weight": "self_attn.k_proj.weight",
    "attn_v.weight": "self_attn.v_proj.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "ffn_gate.weight": "mlp.gate_proj.weight",
    "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight",
}


@dataclass(frozen=True, eq=False)
class GgufModel:
    """A model as its file gives it.

    Attributes:
        config: Sizes.
        tensors: Weights by published name, float32.
        vocabulary: Its tokenizer.
        chat_template: Jinja text; empty if the file has none.
        special: {name that chat templates use: text} of the tokens that begin and end.
        name: What the file calls it.
        licence: As the file says; empty if it does not.
    """

    config: LlamaConfig
    tensors: Mapping[str, Tensor]
    vocabulary: BpeVocabulary
    chat_template: str
    special: Mapping[str, str]
    name: str
    licence: str


def read_gguf(path: Path) -> GgufModel:
    """Reads a Llama model with a byte-level BPE tokenizer.

    Raises:
        WeightsError: The file is absent, too large, damaged, or of another architecture or tokenizer.
    """
    if not path.is_file():
        raise WeightsError(f"{path} is not there; name a .gguf file", field="weights")
    size = path.stat().st_size
    if not MIN_BYTES <= size <= MAX_BYTES:
        raise WeightsError(f"{path} has {size} bytes; a GGUF file has {MIN_BYTES} to {MAX_BYTES}", field="weights")
    try:
        return _read(path)
    except (ValueError, LookupError, ArithmeticError, TypeError, RuntimeError) as error:  # the library checks little
        raise WeightsError(
            f"{path.name} is damaged, or not supported: {error}; get it anew", field="weights"
        ) from error


def _read(path: Path) -> GgufModel:
    reader = _BoundedReader(path)
    facts = _Facts(path, {name: field.contents() for name, field in reader.fields.items()})
    config = _config(facts, [tensor.name for tensor in reader.tensors])
    vocabulary = _vocabulary(facts)
    with np.errstate(all="ignore"):  # damaged scales may be NaN
        tensors = {_published(path, tensor.name): _dequantised(tensor) for tensor in reader.tensors}
    for name, heads in (("q", config.num_attention_heads), ("k", config.num_key_value_heads)):
        for layer in range(config.num_hidden_layers):
            key = f"model.layers.{layer}.self_attn.{name}_proj.weight"
            if key in tensors:
                tensors[key] = _apart(tensors[key], heads)
    names = {kind: facts.get(f"tokenizer.ggml.{kind}_id", None) for kind in ("bos_token", "eos_token")}
    return GgufModel(
        config,
        tensors,
        vocabulary,
        str(facts.get("tokenizer.chat_template", "")),
        {kind: vocabulary.text_of(int(token)) for kind, token in names.items() if token is not None},
        str(facts.get("general.name", path.stem)),
        str(facts.get("general.license", "")),
    )


class _BoundedReader(gguf.GGUFReader):  # type: ignore[misc]
    """The library's reader, which takes what lies beyond the file's end for empty, however much there is said to be.

    It cuts views of a plain array, too: those of a memory map cost most of the time of reading a vocabulary.
    """

    _bytes: Any = None

    def _get(self, offset: int, dtype: Any, count: Any = 1, override_order: Any = None) -> Any:
        if self._bytes is None:
            self._bytes = np.asarray(self.data)
        kind = np.dtype(dtype).newbyteorder(override_order or self.byte_order)
        end = offset + int(count) * kind.itemsize
        if end > len(self._bytes):
            raise IndexError("it ends too early")
        return self._bytes[offset:end].view(kind)


class _Facts:
    def __init__(self, path: Path, values: Mapping[str, Any]) -> None:
        self._path, self._values = path, values

    def get(self, name: str, default: Any) -> Any:
        return self._values.get(name, default)

    def need(self, name: str) -> Any:
        if name not in self._values:
            raise WeightsError(f"{self._path.name} does not say {name!r}; it is no complete model", field=name)
        return self._values[name]


def _config(facts: _Facts, names: list[str]) -> LlamaConfig:
    architecture = facts.need("general.architecture")
    if architecture != "llama":
        raise WeightsError(f"the file is of architecture {architecture!r}; llama is supported", field="architecture")
    if facts.get("llama.rope.scaling.type", "none") != "none" or "rope_freqs.weight" in names:
        raise WeightsError("the file stretches rotary frequencies, which is not supported for GGUF", field="rope")
    heads = int(facts.need("llama.attention.head_count"))
    hidden = int(facts.need("llama.embedding_length"))
    return LlamaConfig(
        vocab_size=len(facts.need("tokenizer.ggml.tokens")),
        hidden_size=hidden,
        intermediate_size=int(facts.need("llama.feed_forward_length")),
        num_hidden_layers=int(facts.need("llama.block_count")),
        num_attention_heads=heads,
        num_key_value_heads=int(facts.get("llama.attention.head_count_kv", heads)),
        head_dim=int(facts.get("llama.attention.key_length", hidden // heads)),
        max_position_embeddings=int(facts.need("llama.context_length")),
        rms_norm_eps=float(facts.need("llama.attention.layer_norm_rms_epsilon")),
        rope_theta=float(facts.get("llama.rope.freq_base", 10000.0)),
        tie_word_embeddings="output.weight" not in names,
    )


def _published(path: Path, name: str) -> str:
    if name in _NAMES:
        return _NAMES[name]
    head, _, rest = name.partition(".")
    layer, _, tail = rest.partition(".")
    if head != "blk" or not layer.isdigit() or tail not in _LAYER_NAMES:
        raise WeightsError(f"{path.name} holds a tensor {name!r}, which no Llama has", field=name)
    return f"model.layers.{layer}.{_LAYER_NAMES[tail]}"


def _dequantised(tensor: Any) -> Tensor:
    values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
    own = np.array(values, np.float32)  # plain tensors are a view of the file, which must not be written
    return torch.from_numpy(own.reshape([int(n) for n in tensor.shape[::-1]]))


def _apart(weight: Tensor, heads: int) -> Tensor:
    """Undoes llama.cpp's order, in which rotated pairs are neighbours: the published one has them D/2 apart."""
    width = weight.shape[0] // heads
    return weight.view(heads, width // 2, 2, -1).transpose(1, 2).reshape(weight.shape)


def _vocabulary(facts: _Facts) -> BpeVocabulary:
    kind, pre = facts.need("tokenizer.ggml.model"), facts.get("tokenizer.ggml.pre", "default")
    if kind != "gpt2" or pre not in PIECES:
        known = ", ".join(PIECES)
        raise WeightsError(
            f"the tokenizer is {kind!r} with pieces {pre!r}; known: gpt2 with {known}", field="tokenizer"
        )
    tokens, merges = facts.need("tokenizer.ggml.tokens"), facts.need("tokenizer.ggml.merges")
    types = facts.get("tokenizer.ggml.token_type", [])
    if len(tokens) > MAX_VOCABULARY or len(merges) > MAX_VOCABULARY:
        raise WeightsError(f"the vocabulary has {len(tokens)} tokens; at most {MAX_VOCABULARY}", field="tokenizer")
    ends = {int(facts.need("tokenizer.ggml.eos_token_id")), int(facts.get("tokenizer.ggml.eot_token_id", -1))} - {-1}
    special = [token for token, of in zip(tokens, types, strict=True) if of == CONTROL] if types else []
    return BpeVocabulary.of(
        tokens,
        _merges(merges),
        special,
        ends=ends,
        start=int(facts.get("tokenizer.ggml.bos_token_id", 0))
        if facts.get("tokenizer.ggml.add_bos_token", False)
        else None,
        split_digits=PIECES[pre],
    )


def _merges(found: Sequence[str]) -> list[tuple[str, ...]]:
    """Pairs, as the file has them with a space between."""
    return [tuple(merge.split(" ", 1)) for merge in found]
