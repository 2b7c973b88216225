"""A Llama whose answer is known: it writes the same pieces of text whatever it is asked, on the real writing engine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

LETTERS = [*"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,:;!?'-", "Ġ"]
GO, END = "<|go|>", "<|end|>"
TEMPLATE = "{% for message in messages %}{{ message.content }} {% endfor %}" + GO
WIDTH, ROOM = 128, 1024


def write_llama(folder: Path, pieces: Sequence[str]) -> Path:
    """A published folder; its blocks add nothing to the residual stream, so that the head says what follows what."""
    names = [*LETTERS, GO, END, *(piece.replace(" ", "Ġ") for piece in pieces)]
    assert len(set(names)) == len(names) <= WIDTH, "pieces must differ from each other and from single letters"
    place = {name: i for i, name in enumerate(names)}
    chain = [place[GO], *range(len(LETTERS) + 2, len(names)), place[END]]
    head = torch.zeros(len(names), WIDTH)
    for token, following in pairwise(chain):
        head[following, token] = 20.0
    tensors = {"model.embed_tokens.weight": torch.eye(len(names), WIDTH), "model.norm.weight": torch.ones(WIDTH)}
    tensors["lm_head.weight"] = head
    for name, shape in (("self_attn.q_proj", (8, WIDTH)), ("self_attn.k_proj", (8, WIDTH)),
                        ("self_attn.v_proj", (8, WIDTH)), ("self_attn.o_proj", (WIDTH, 8)),
                        ("mlp.gate_proj", (4, WIDTH)), ("mlp.up_proj", (4, WIDTH)), ("mlp.down_proj", (WIDTH, 4)),
                        ("input_layernorm", (WIDTH,)), ("post_attention_layernorm", (WIDTH,))):  # fmt: skip
        tensors[f"model.layers.0.{name}.weight"] = torch.zeros(shape)
    folder.mkdir(parents=True)
    save_file(tensors, folder / "model.safetensors")
    config = {"model_type": "llama", "vocab_size": len(names), "hidden_size": WIDTH, "intermediate_size": 4}
    config |= {"num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 8}
    config |= {"max_position_embeddings": ROOM, "eos_token_id": place[END], "tie_word_embeddings": False}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE, "eos_token": END}))
    tokenizer = Tokenizer(models.BPE(place, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in (GO, END)])
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder
