"""GGUF files: sizes, weights in published order, the tokenizer; and files that must not pass."""

from __future__ import annotations

import random
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from tiny_llama import CONFIG, END, START, pool_of, tensors, vocabulary
from tokenizers import pre_tokenizers

from mstar_plan.errors import WeightsError
from mstar_plan.models.llama.decoder import LlamaDecoder
from mstar_plan.models.llama.gguf_file import _LAYER_NAMES, _NAMES, read_gguf
from mstar_plan.runtime.generation.paged_step import SlicedStep
from mstar_plan.runtime.generation.sequence import Sequence


def together(weight: np.ndarray, heads: int) -> np.ndarray:
    """llama.cpp's order: rotated pairs are neighbours."""
    rows, wide = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, wide).swapaxes(1, 2).reshape(rows, wide)


def write(path: Path, *, architecture: str = "llama", leave: str = "", pre: str = "default", **more: Any) -> Path:
    """A file with the tiny model."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(CONFIG.max_position_embeddings)
    writer.add_embedding_length(CONFIG.hidden_size)
    writer.add_block_count(CONFIG.num_hidden_layers)
    writer.add_feed_forward_length(CONFIG.intermediate_size)
    writer.add_head_count(CONFIG.num_attention_heads)
    writer.add_head_count_kv(CONFIG.num_key_value_heads)
    writer.add_key_length(CONFIG.head_dim)
    writer.add_layer_norm_rms_eps(CONFIG.rms_norm_eps)
    writer.add_rope_freq_base(CONFIG.rope_theta)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    writer.add_token_list(["<|end|>", "<|start|>", *alphabet])
    writer.add_token_types(more.get("types") or [3, 3, *[1] * 256])
    writer.add_token_merges(["a b"] if more.get("wrong_merge") else ["! !"] if more.get("merge") else [""])
    writer.add_eos_token_id(more.get("end", END))
    if more.get("stretched"):
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    if more.get("eot"):
        writer.add_eot_token_id(START)
        writer.add_bos_token_id(START)
        writer.add_add_bos_token(True)
    writer.add_chat_template("{{ messages[0].content }}")
    names = {theirs: ours for ours, theirs in _NAMES.items()}
    layers = {theirs: ours for ours, theirs in _LAYER_NAMES.items()}
    for name, tensor in tensors().items():
        values = tensor.numpy()
        if "q_proj" in name:
            values = together(values, CONFIG.num_attention_heads)
        if "k_proj" in name:
            values = together(values, CONFIG.num_key_value_heads)
        if name in names:
            stored = names[name]
        else:
            _, _, layer, rest = name.split(".", 3)
            stored = f"blk.{layer}.{layers[rest]}"
        if "attn_q" in stored and more.get("rows"):
            values = values[: more["rows"]]
        if more.get("quantised") and "ffn_up" in stored:
            packed = gguf.quants.quantize(values, gguf.GGMLQuantizationType.Q8_0)
            writer.add_tensor(stored, packed, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
        elif stored != leave:
            writer.add_tensor(stored, np.ascontiguousarray(values))
    if more.get("extra"):
        writer.add_tensor(more["extra"], np.zeros((4, 4), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture
def no_merges(monkeypatch: pytest.MonkeyPatch) -> None:
    """A vocabulary of single bytes has no merges, which the format's writer cannot say."""
    monkeypatch.setattr("mstar_plan.models.llama.gguf_file._merges", lambda found: [])


def test_a_file_is_the_model_that_it_was_made_of(tmp_path: Path, no_merges: None) -> None:
    found = read_gguf(write(tmp_path / "m.gguf"))
    assert replace(found.config, rms_norm_eps=CONFIG.rms_norm_eps) == CONFIG  # the file keeps it in float32
    for name, tensor in tensors().items():
        torch.testing.assert_close(found.tensors[name], tensor)
    assert found.chat_template == "{{ messages[0].content }}"
    assert found.vocabulary.encode("hi<|start|>") == [*vocabulary().encode("hi"), START]
    decoder = LlamaDecoder(found.config, found.tensors)
    sequence = Sequence.open(pool_of(), [5], 4)
    sequence.reserve(1)
    logits = decoder.forward(torch.tensor([5]), SlicedStep(sequence.pool, [(sequence, 1)]), torch.tensor([0]))
    assert logits.shape == (1, CONFIG.vocab_size)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"architecture": "mamba"}, "architecture 'mamba'"),
        ({"pre": "llama-bpe"}, "pieces 'llama-bpe'"),
    ],
)
def test_other_models_are_refused(tmp_path: Path, no_merges: None, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(WeightsError, match=said):
        read_gguf(write(tmp_path / "m.gguf", **settings))


def test_missing_and_damaged_files(tmp_path: Path, no_merges: None) -> None:
    with pytest.raises(WeightsError, match="not there"):
        read_gguf(tmp_path / "none.gguf")
    path = write(tmp_path / "m.gguf")
    whole = path.read_bytes()
    for cut in (10, 100, 2000, len(whole) - 100):
        path.write_bytes(whole[:cut])
        with pytest.raises(WeightsError):
            read_gguf(path)
    path.write_bytes(b"nonsense" * 100)
    with pytest.raises(WeightsError, match="damaged"):
        read_gguf(path)


def test_lengths_are_not_believed(tmp_path: Path) -> None:
    """A list that says that it has 2^62 items, at the end of the file."""
    head = struct.pack("<IIQQ", 0x46554747, 3, 0, 1)
    for item in (0, 4, 7, 8, 9):  # uint8, uint32, bool, text, list
        name = b"x" * 40
        array = struct.pack("<Q", len(name)) + name + struct.pack("<IIQ", 9, item, 2**62)
        (tmp_path / "m.gguf").write_bytes(head + array)
        with pytest.raises(WeightsError, match="damaged"):
            read_gguf(tmp_path / "m.gguf")
    (tmp_path / "m.gguf").write_bytes(struct.pack("<IIQQ", 0x46554747, 3, 2**62, 2**62))
    with pytest.raises(WeightsError, match="damaged"):
        read_gguf(tmp_path / "m.gguf")


def test_damage_anywhere_is_an_error_or_another_model(tmp_path: Path, no_merges: None) -> None:
    path = write(tmp_path / "m.gguf")
    whole, dice = path.read_bytes(), random.Random(0)
    head = whole.index(b"token_embd.weight") + 200
    refused = 0
    for _ in range(40):
        damaged = bytearray(whole)
        for _ in range(dice.choice((1, 1, 4))):
            damaged[dice.randrange(head) if dice.random() < 0.8 else dice.randrange(head + 2000)] = dice.randrange(256)
        path.write_bytes(damaged if dice.random() < 0.7 else damaged[: dice.randrange(len(damaged))])
        try:
            read_gguf(path)
        except WeightsError:
            refused += 1
    assert refused > 15


def test_all_ends_and_the_start_are_told(tmp_path: Path, no_merges: None) -> None:
    found = read_gguf(write(tmp_path / "m.gguf", eot=True))
    assert found.vocabulary.ends == {END, START}
    assert found.vocabulary.start == START
    assert found.special == {"bos_token": "<|start|>", "eos_token": "<|end|>"}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"types": [1, 1]}, "damaged"),
        ({"end": 5000}, "ending tokens"),
        ({"stretched": True}, "stretches"),
        ({"extra": "blk.0.ffn_gate_exps.weight"}, "no Llama has"),
        ({"extra": "mm.0.weight"}, "no Llama has"),
        ({"rows": 7}, "damaged"),
    ],
)
def test_what_does_not_fit_together(tmp_path: Path, no_merges: None, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(WeightsError, match=said):
        read_gguf(write(tmp_path / "m.gguf", **settings))


def test_quantised_weights_are_near(tmp_path: Path, no_merges: None) -> None:
    found = read_gguf(write(tmp_path / "m.gguf", quantised=True))
    want = tensors()["model.layers.0.mlp.up_proj.weight"]
    got = found.tensors["model.layers.0.mlp.up_proj.weight"]
    assert not torch.equal(got, want)
    torch.testing.assert_close(got, want, atol=0.02, rtol=0)


def test_a_missing_tensor_is_named(tmp_path: Path, no_merges: None) -> None:
    found = read_gguf(write(tmp_path / "m.gguf", leave="blk.1.ffn_up.weight"))
    with pytest.raises(WeightsError, match=r"layers.1.mlp.up_proj"):
        LlamaDecoder(found.config, found.tensors)
