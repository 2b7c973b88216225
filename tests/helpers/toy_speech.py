"""Toy speech: a language model that writes what a script says, and a codec of random weights."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor

from mstar_plan.models.orpheus.tokens import OrpheusTokens, deinterleave, interleave
from mstar_plan.models.snac.codec import Snac
from mstar_plan.models.snac.config import SnacConfig
from mstar_plan.runtime.generation.text import TextDelta
from mstar_plan.walks.component import Batching, FunctionComponent
from mstar_plan.walks.graph import Graph
from mstar_plan.walks.step import Loop, Node
from mstar_plan.walks.walk import Walk

TOKENS = OrpheusTokens(before=(1,), after=(2, 3), end=4, first_code=10, spacing=16, codes=16)
SIZES = SnacConfig(
    encoder_dim=2, encoder_rates=(2, 3), decoder_dim=8, decoder_rates=(3, 2), codebook_size=16, codebook_dim=3
)
# Kinds of codecs: with odd rates and none, one rate of codes, dense convolutions, and attention in windows.
KINDS = {
    "depthwise": SIZES,
    "dense": SnacConfig(
        encoder_dim=2, encoder_rates=(2,), decoder_dim=8, decoder_rates=(5, 2, 2), codebook_size=16, codebook_dim=3,
        depthwise=False, noise=False,
    ),
    "single": SnacConfig(
        encoder_dim=2, encoder_rates=(4,), decoder_dim=4, decoder_rates=(4,), codebook_size=16, codebook_dim=2,
        vq_strides=(1,),
    ),
    "attention": SnacConfig(
        encoder_dim=16, encoder_rates=(2, 4), decoder_dim=128, decoder_rates=(4, 2), codebook_size=16, codebook_dim=3,
        attn_window_size=8,
    ),
}  # fmt: skip


def toy_codec(config: SnacConfig = SIZES, seed: int = 0) -> Snac:
    """Weights large enough that every code is heard; float64, so that what is exact is equal to the last digits."""
    torch.manual_seed(seed)
    codec = Snac(config).double().eval().requires_grad_(False)
    for name, tensor in codec.state_dict().items():
        if name.endswith("alpha"):
            tensor.uniform_(0.5, 2)
        elif name.endswith("codebook.weight"):
            tensor.normal_(0, 3)
    return codec


def toy_codes(config: SnacConfig, frames: int, rows: int = 1, seed: int = 0) -> list[Tensor]:
    """[rows, frames codes_per_frame] of each book."""
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randint(0, config.codebook_size, (rows, frames * each), generator=generator)
        for each in config.codes_per_frame
    ]


def tokens_of(codes: Sequence[Tensor], tokens: OrpheusTokens = TOKENS) -> list[int]:
    """Tokens that a language model would write for the codes [1, n] of each book."""
    flat = interleave([book[0].tolist() for book in codes])
    return [tokens.token(code, i % tokens.frame) for i, code in enumerate(flat)]


def script(tokens: Sequence[int], finish: str = "stop") -> tuple[tuple[TextDelta, ...], ...]:
    """One token a step; the last one ends the answer."""
    last = len(tokens) - 1
    return tuple((TextDelta(0, "", (t,), (), finish if i == last else None),) for i, t in enumerate(tokens))


def scripted_language() -> tuple[Graph, Walk]:
    """Writes the steps of its input "lines", a tuple of tuples of deltas; outputs "answers" and "steps"."""

    def step(lines: Sequence[Sequence[TextDelta]], turn: Tensor) -> tuple[Sequence[TextDelta], bool, int]:
        at = int(turn[0])
        return lines[at], at + 1 == len(lines), at + 1

    writing = Loop(
        Node("step", ("lines", "turn"), ("deltas", "done", "steps")),
        times=100_000,
        until="done",
        index="turn",
        collect={"deltas": "answers"},
        name="writing",
    )
    walk = Walk("generate", writing, ("lines",), ("answers", "steps"))
    component = FunctionComponent(step, ("lines", "turn"), ("deltas", "done", "steps"), Batching.ALONE)
    return Graph("scripted", {"step": component}, {walk.name: walk}), walk


SPOKEN = OrpheusTokens(before=(60,), after=(61, 62, 63, 64), end=65, first_code=70, spacing=4, codes=4)
LETTERS = "abcdefghijklmnopqrstuvwxyz:.,!?0123456789Ġ"


def spoken_codes(config: SnacConfig) -> list[Tensor]:
    """The codes of four frames that the model of `write_orpheus` writes whatever it is told."""
    flat = torch.arange(4 * SPOKEN.frame).reshape(4, SPOKEN.frame) // SPOKEN.frame
    assert config.codebook_size >= SPOKEN.codes
    return [torch.tensor([row]) for row in deinterleave(flat.flatten().tolist())]


def write_orpheus(folder: Path, codec: Snac) -> Path:
    """A published folder whose Llama follows a chain: behind the prompt all codes of all places, then the end.

    Its blocks add nothing to the residual stream, so that the head alone says which token follows which.
    """
    size, width = SPOKEN.size, 128
    chain = [SPOKEN.after[-1], *tokens_of(spoken_codes(codec.config), SPOKEN), SPOKEN.end]
    head = torch.zeros(size, width)
    for token, following in pairwise(chain):
        head[following, token] = 20.0
    tensors = {"model.embed_tokens.weight": torch.eye(size, width), "model.norm.weight": torch.ones(width)}
    tensors["lm_head.weight"] = head
    for name, shape in (("self_attn.q_proj", (8, width)), ("self_attn.k_proj", (8, width)),
                        ("self_attn.v_proj", (8, width)), ("self_attn.o_proj", (width, 8)),
                        ("mlp.gate_proj", (4, width)), ("mlp.up_proj", (4, width)), ("mlp.down_proj", (width, 4)),
                        ("input_layernorm", (width,)), ("post_attention_layernorm", (width,))):  # fmt: skip
        tensors[f"model.layers.0.{name}.weight"] = torch.zeros(shape)
    (folder / "snac").mkdir(parents=True)
    save_file(tensors, folder / "model.safetensors")
    config = {"model_type": "llama", "vocab_size": size, "hidden_size": width, "intermediate_size": 4}
    config |= {"num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 8}
    config |= {"max_position_embeddings": 512, "bos_token_id": 59, "eos_token_id": 66, "tie_word_embeddings": False}
    (folder / "config.json").write_text(json.dumps(config))
    names = [LETTERS[i] if i < len(LETTERS) else f"<|{i}|>" for i in range(size)]
    tokenizer = Tokenizer(models.BPE({name: i for i, name in enumerate(names)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in names[len(LETTERS) :]])
    tokenizer.save(str(folder / "tokenizer.json"))
    write_snac(folder / "snac", codec)
    return folder


def write_snac(folder: Path, codec: Snac) -> None:
    """A published codec folder, weight norm apart."""
    (folder / "config.json").write_text(json.dumps(asdict(codec.config)))
    torch.save({name: value.float() for name, value in unfolded(codec).items()}, folder / "pytorch_model.bin")


def unfolded(codec: Snac) -> dict[str, Tensor]:
    """State as published: every convolution's weight as a magnitude and a direction (here of another length)."""
    state: dict[str, Tensor] = {}
    kinds = torch.nn.Conv1d | torch.nn.ConvTranspose1d
    convolutions = {name for name, module in codec.named_modules() if isinstance(module, kinds)}
    for name, tensor in codec.state_dict().items():
        stem, _, kind = name.rpartition(".")
        if kind == "weight" and stem in convolutions:
            norm = tensor.norm(dim=(1, 2), keepdim=True)
            state[f"{stem}.parametrizations.weight.original0"] = norm
            state[f"{stem}.parametrizations.weight.original1"] = 3 * tensor
        else:
            state[name] = tensor
    return state
