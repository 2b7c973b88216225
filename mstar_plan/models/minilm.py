"""BERT as a sentence encoder (Devlin et al. 2019; Reimers and Gurevych 2019): tokens to one unit vector a text.

N texts, L tokens of the longest, C width, H heads, D width of a head, F width inside a block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - its usual name

from mstar_plan.errors import WeightsError
from mstar_plan.walks.batch import Batch
from mstar_plan.walks.component import Batching, Outputs

UNUSED = ("pooler.", "embeddings.position_ids")
TOKENS_AT_ONCE = 4096  # of a padded pass: bounds its memory
WASTE = 1.25  # padded tokens of a pass for each real one, at most, unless it is small anyway
SMALL = 256


@dataclass(frozen=True)
class BertConfig:
    """Sizes under their published names.

    Attributes:
        vocab_size: Tokens.
        hidden_size: C.
        intermediate_size: F.
        num_hidden_layers: Blocks.
        num_attention_heads: H.
        max_position_embeddings: Longest text in tokens.
        type_vocab_size: Kinds of segments; the first one is used.
        layer_norm_eps: Epsilon of the norms.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    layer_norm_eps: float = 1e-12

    def __post_init__(self) -> None:
        for name in list(self.__dataclass_fields__)[:-1]:
            if type(getattr(self, name)) is not int or not 0 < getattr(self, name) < 2**20:
                raise WeightsError(f"{name} is {getattr(self, name)!r}; it needs a whole number from 1", field=name)
        if self.hidden_size % self.num_attention_heads:
            raise WeightsError(
                f"hidden_size {self.hidden_size} is no multiple of num_attention_heads {self.num_attention_heads}",
                field="hidden_size",
            )

    @staticmethod
    def from_published(values: Mapping[str, Any]) -> BertConfig:
        """Reads a published `config.json`.

        Raises:
            WeightsError: It is of another architecture, lacks a size, or asks for what is not computed here.
        """
        for name, needed in (("model_type", "bert"), ("hidden_act", "gelu"), ("position_embedding_type", "absolute")):
            if values.get(name, needed) != needed:
                raise WeightsError(f"{name} is {values[name]!r}; only {needed!r} is computed here", field=name)
        known = BertConfig.__dataclass_fields__
        sizes: dict[str, Any] = {name: value for name, value in values.items() if name in known}
        try:
            return BertConfig(**sizes)
        except TypeError as error:
            raise WeightsError(f"the config lacks a size: {error}", field="config") from error


class BertEncoder:
    """Weights of an encoder, laid out for inference.

    Args:
        config: Its sizes.
        tensors: Weights by published name, with or without `bert.` before them.
        dtype: Of weights and activations.
        device: Where.

    Raises:
        WeightsError: A tensor is missing, of another shape, not known or not finite.
    """

    def __init__(
        self,
        config: BertConfig,
        tensors: Mapping[str, Tensor],
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> None:
        self.config = config
        named = {name.removeprefix("bert."): tensor for name, tensor in tensors.items()}
        self._weights: dict[str, Tensor] = {}
        for name, shape in tensor_shapes(config):
            tensor = named.pop(name, None)
            if tensor is None or tuple(tensor.shape) != shape:
                found = "is missing" if tensor is None else f"is {list(tensor.shape)}"
                raise WeightsError(f"tensor {name} {found}; the config asks for {list(shape)}", field=name)
            if not bool(tensor.isfinite().all()):
                raise WeightsError(f"tensor {name} holds NaN or infinity; get the file anew", field=name)
            self._weights[name] = tensor.to(device=device, dtype=dtype)
        left = sorted(name for name in named if not name.startswith(UNUSED))
        if left:
            raise WeightsError(f"tensor {left[0]} is not known; {len(left)} are too many", field=left[0])
        for layer in range(config.num_hidden_layers):  # query, key and value in one product
            for kind in ("weight", "bias"):
                parts = [self._weights.pop(f"{_layer(layer)}.attention.self.{p}.{kind}") for p in _QKV]
                self._weights[f"{_layer(layer)}.attention.self.{kind}"] = torch.cat(parts)

    @property
    def device(self) -> torch.device:
        """Where its weights are."""
        return self._weights["embeddings.word_embeddings.weight"].device

    def forward(self, ids_NL: Tensor, lengths_N: Tensor) -> Tensor:
        """The last states [N, L, C] of texts of `lengths_N` tokens; what lies behind a text's end means nothing."""
        words_NLC = F.embedding(ids_NL, self._weights["embeddings.word_embeddings.weight"])
        places_LC = self._weights["embeddings.position_embeddings.weight"][: ids_NL.shape[1]]
        kind_C = self._weights["embeddings.token_type_embeddings.weight"][0]
        x_NLC = self._norm(words_NLC + places_LC + kind_C, "embeddings.LayerNorm")
        real_NL = _real(ids_NL, lengths_N)
        mask_N11L = None if bool(real_NL.all()) else real_NL[:, None, None]
        for number in range(self.config.num_hidden_layers):
            x_NLC = self._block(x_NLC, mask_N11L, _layer(number))
        return x_NLC

    def embed(self, ids_NL: Tensor, lengths_N: Tensor) -> Tensor:
        """[N, C] float32 of unit length: the mean of each text's states, brought to length one."""
        states_NLC = self.forward(ids_NL, lengths_N).float()
        states_NLC = states_NLC.masked_fill(~_real(ids_NL, lengths_N)[..., None], 0)
        return F.normalize(states_NLC.sum(1) / lengths_N[:, None], dim=-1)

    def _block(self, x_NLC: Tensor, mask_N11L: Tensor | None, name: str) -> Tensor:
        texts, tokens, width = x_NLC.shape
        heads = self.config.num_attention_heads
        qkv = self._linear(x_NLC, f"{name}.attention.self").view(texts, tokens, 3, heads, width // heads)
        q_NHLD, k_NHLD, v_NHLD = qkv.permute(2, 0, 3, 1, 4)
        mixed_NHLD = F.scaled_dot_product_attention(q_NHLD, k_NHLD, v_NHLD, mask_N11L)
        mixed_NLC = self._linear(mixed_NHLD.transpose(1, 2).flatten(2), f"{name}.attention.output.dense")
        x_NLC = self._norm(x_NLC + mixed_NLC, f"{name}.attention.output.LayerNorm")
        inside_NLF = F.gelu(self._linear(x_NLC, f"{name}.intermediate.dense"))
        return self._norm(x_NLC + self._linear(inside_NLF, f"{name}.output.dense"), f"{name}.output.LayerNorm")

    def _linear(self, x: Tensor, name: str) -> Tensor:
        return F.linear(x, self._weights[f"{name}.weight"], self._weights[f"{name}.bias"])

    def _norm(self, x: Tensor, name: str) -> Tensor:
        weight, bias = self._weights[f"{name}.weight"], self._weights[f"{name}.bias"]
        return F.layer_norm(x, weight.shape, weight, bias, self.config.layer_norm_eps)


class EmbedStep:
    """Component: ports `ids` [B, L] int64 and `lengths` [B] int64; gives `embeddings` [B, C] and `tokens` [B].

    The texts of all requests are put in order of length and go through the encoder with neighbours, so that a short one
    is not padded to a long one, whoever sent it.
    """

    inputs = ("ids", "lengths")
    outputs = ("embeddings", "tokens")
    batching = Batching.RAGGED

    def __init__(self, encoder: BertEncoder) -> None:
        self.encoder = encoder

    def __call__(self, batch: Batch) -> Outputs:
        """One request alone."""
        return self.run([batch])[0]

    @torch.inference_mode()
    def run(self, batches: Sequence[Batch]) -> list[Outputs]:
        """Several requests."""
        rows = [row for batch in batches for row in batch["ids"].unbind()]
        lengths = [int(length) for batch in batches for length in batch["lengths"]]
        vectors: list[Tensor] = [torch.empty(0)] * len(rows)
        for members in passes(lengths):
            longest = lengths[members[-1]]
            ids_NL = torch.stack([F.pad(rows[i][:longest], (0, max(0, longest - len(rows[i])))) for i in members])
            lengths_N = torch.tensor([lengths[i] for i in members], device=self.encoder.device)
            for i, vector in zip(members, self.encoder.embed(ids_NL.to(self.encoder.device), lengths_N), strict=True):
                vectors[i] = vector
        answers: list[Outputs] = []
        taken = iter(vectors)
        for batch in batches:
            embeddings = torch.stack([next(taken) for _ in range(batch.size)])
            answers.append({"embeddings": embeddings, "tokens": batch["lengths"]})
        return answers


def passes(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Groups texts for passes of the encoder: indices in order of length, with bounded padding and size."""
    group: list[int] = []
    real = 0
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        padded = lengths[i] * (len(group) + 1)
        if group and (padded > TOKENS_AT_ONCE or (padded > SMALL and padded > WASTE * (real + lengths[i]))):
            yield group
            group, real = [], 0
        group.append(i)
        real += lengths[i]
    if group:
        yield group


_QKV = ("query", "key", "value")


def _layer(number: int) -> str:
    return f"encoder.layer.{number}"


def _real(ids_NL: Tensor, lengths_N: Tensor) -> Tensor:
    return torch.arange(ids_NL.shape[1], device=ids_NL.device) < lengths_N[:, None]


def tensor_shapes(config: BertConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Every tensor that an encoder has, by published name, with its shape."""
    width, inside = config.hidden_size, config.intermediate_size
    yield "embeddings.word_embeddings.weight", (config.vocab_size, width)
    yield "embeddings.position_embeddings.weight", (config.max_position_embeddings, width)
    yield "embeddings.token_type_embeddings.weight", (config.type_vocab_size, width)
    linear: dict[str, tuple[int, int]] = {f"attention.self.{part}": (width, width) for part in _QKV}
    linear |= {"attention.output.dense": (width, width), "intermediate.dense": (inside, width)}
    linear["output.dense"] = (width, inside)
    layers = [_layer(number) for number in range(config.num_hidden_layers)]
    for name, shape in ((f"{layer}.{part}", shape) for layer in layers for part, shape in linear.items()):
        yield f"{name}.weight", shape
        yield f"{name}.bias", shape[:1]
    norms = [f"{layer}.{part}.LayerNorm" for layer in layers for part in ("attention.output", "output")]
    for name in ("embeddings.LayerNorm", *norms):
        yield f"{name}.weight", (width,)
        yield f"{name}.bias", (width,)
