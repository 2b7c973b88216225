"""A Llama decoder over sequences of different lengths, packed: only attention knows where one ends.

Shapes: M new tokens of all sequences, C hidden, H heads, G heads of keys and values, D head width, F gated width,
V vocabulary, R rows whose next token is wanted.

The layers are this project's own, and not those of the transformers library: those pad every sequence of a batch to the
longest, and keep their keys and values in a tensor of the batch, which a request cannot join or leave between steps.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from mstar_plan.errors import WeightsError
from mstar_plan.models.layers.fused_linear import FusedLinear
from mstar_plan.models.llama.config import LlamaConfig
from mstar_plan.models.llama.rope import interleave, rotations
from mstar_plan.walks.cache import SequenceCache

PACKED_FROM = 3  # rows; in float32 oneDNN's packed weights are slower than plain ones below that, measured
BOTH_LAYOUTS = 1 << 30  # bytes; weights are kept in both layouts up to this size


class Projection:
    """x W^T + b for few rows or many: two layouts of one weight in float32, where one product suits both badly.

    Args:
        weight: [O, I].
        bias: [O] or None.
        twice: Keep both layouts.
    """

    __slots__ = ("_bias", "_packed", "_plain")

    def __init__(self, weight: Tensor, bias: Tensor | None = None, *, twice: bool) -> None:
        packs = twice or weight.dtype != torch.float32
        self._packed = FusedLinear(weight, bias, rows=8) if packs else None
        self._plain = weight if weight.dtype == torch.float32 or self._packed is None else None
        self._bias = bias

    def __call__(self, x_MI: Tensor) -> Tensor:
        """[M, I] to [M, O]."""
        if self._packed is not None and (self._plain is None or len(x_MI) >= PACKED_FROM):
            return self._packed(x_MI)
        assert self._plain is not None
        return functional.linear(x_MI, self._plain, self._bias)

    def plus(self, x_MI: Tensor, residual_MO: Tensor) -> Tensor:
        """[M, I] to [M, O], plus a residual."""
        if self._packed is not None and (self._plain is None or len(x_MI) >= PACKED_FROM):
            return self._packed.plus(x_MI, residual_MO)
        assert self._plain is not None
        return functional.linear(x_MI, self._plain, self._bias) + residual_MO


class _Layer:
    """One block: attention and a gated layer, each behind a norm, each added to what it read."""

    def __init__(self, config: LlamaConfig, weights: _Weights, number: int, *, twice: bool) -> None:
        heads, groups = config.num_attention_heads, config.num_key_value_heads
        self._heads, self._groups, self._width, self._eps = heads, groups, config.head_dim, config.rms_norm_eps
        self._number = number
        prefix = f"model.layers.{number}"
        self._norm_in = weights.take(f"{prefix}.input_layernorm.weight", config.hidden_size)
        self._norm_mid = weights.take(f"{prefix}.post_attention_layernorm.weight", config.hidden_size)

        def joined(kind: str) -> Tensor:
            wide = (config.hidden_size,) if kind == "weight" else ()
            q, k, v = (
                weights.take(f"{prefix}.self_attn.{name}_proj.{kind}", count * config.head_dim, *wide)
                for name, count in (("q", heads), ("k", groups), ("v", groups))
            )
            return torch.cat([interleave(q, heads), interleave(k, groups), v])

        self._qkv = Projection(joined("weight"), joined("bias") if config.attention_bias else None, twice=twice)
        out = weights.take(f"{prefix}.self_attn.o_proj.weight", config.hidden_size, heads * config.head_dim)
        out_bias = f"{prefix}.self_attn.o_proj.bias"  # some published models have one beside the others
        has_bias = config.attention_bias and out_bias in weights
        self._out = Projection(out, weights.take(out_bias, config.hidden_size) if has_bias else None, twice=twice)
        shape = (config.intermediate_size, config.hidden_size)
        gates = [weights.take(f"{prefix}.mlp.{name}_proj.weight", *shape) for name in ("gate", "up")]
        self._gate_up = Projection(torch.cat(gates), twice=twice)
        self._down = Projection(weights.take(f"{prefix}.mlp.down_proj.weight", *shape[::-1]), twice=twice)

    def __call__(self, x_MC: Tensor, turn_M1d: Tensor, cache: SequenceCache) -> Tensor:
        heads, groups, width = self._heads, self._groups, self._width
        normed = functional.rms_norm(x_MC, (x_MC.shape[1],), self._norm_in, self._eps)
        qkv = self._qkv(normed).view(len(x_MC), heads + 2 * groups, width)
        turned = (
            torch.view_as_complex(qkv[:, : heads + groups].float().view(len(x_MC), heads + groups, width // 2, 2))
            * turn_M1d
        )
        qk = torch.view_as_real(turned).flatten(2).to(x_MC.dtype)
        mixed = cache.attend(self._number, qk[:, :heads], qk[:, heads:], qkv[:, heads + groups :])
        x_MC = self._out.plus(mixed, x_MC)
        normed = functional.rms_norm(x_MC, (x_MC.shape[1],), self._norm_mid, self._eps)
        gate, up = self._gate_up(normed).chunk(2, dim=1)
        return self._down.plus(functional.silu(gate) * up, x_MC)


class _Weights:
    """Tensors by published name, each taken once and checked."""

    def __init__(self, tensors: Mapping[str, Tensor], dtype: torch.dtype, device: torch.device | str | None) -> None:
        self._left, self._dtype, self._device = dict(tensors), dtype, device

    def __contains__(self, name: str) -> bool:
        return name in self._left

    def take(self, name: str, *shape: int) -> Tensor:
        tensor = self._left.pop(name, None)
        if tensor is None:
            raise WeightsError(f"the weights lack {name!r}; use a file of the Llama family", field=name)
        if tuple(tensor.shape) != shape:
            what = f"{name!r} has shape {tuple(tensor.shape)}"
            raise WeightsError(f"{what}, and the configuration says {shape}", field=name)
        return tensor.to(device=self._device, dtype=self._dtype).contiguous()

    def done(self, ignore: tuple[str, ...]) -> None:
        left = sorted(name for name in self._left if not name.endswith(ignore))
        if left:
            raise WeightsError(f"the weights have {len(left)} tensors too many: {', '.join(left[:5])}", field=left[0])


class LlamaDecoder:
    """Weights of a decoder, laid out for inference. Not a module: nothing in it is trained or changed.

    Args:
        config: Its sizes.
        tensors: Weights by published name (`model.layers.0.self_attn.q_proj.weight`, ...).
        dtype: Of weights and activations.
        device: Where.

    Raises:
        WeightsError: A tensor is missing, of another shape, or not known.
    """

    def __init__(
        self,
        config: LlamaConfig,
        tensors: Mapping[str, Tensor],
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> None:
        weights = _Weights(tensors, dtype, device)
        self.config, self.dtype = config, dtype
        count = sum(tensor.numel() for tensor in tensors.values())
        twice = dtype == torch.float32 and 4 * count <= BOTH_LAYOUTS
        shape = (config.vocab_size, config.hidden_size)
        self._embedding = weights.take("model.embed_tokens.weight", *shape)
        self._layers = [_Layer(config, weights, n, twice=twice) for n in range(config.num_hidden_layers)]
        self._norm = weights.take("model.norm.weight", config.hidden_size)
        if config.tie_word_embeddings:
            weights.done(("lm_head.weight", "rotary_emb.inv_freq"))
            self._head = Projection(self._embedding, twice=twice)
        else:
            self._head = Projection(weights.take("lm_head.weight", *shape), twice=twice)
            weights.done(("rotary_emb.inv_freq",))
        self._turns = rotations(config).to(self._embedding.device)

    @property
    def device(self) -> torch.device:
        """Where its weights are."""
        return self._embedding.device

    def forward(self, tokens_M: Tensor, cache: SequenceCache, rows_R: Tensor | None) -> Tensor:
        """One pass over new tokens.

        Args:
            tokens_M: [M] int64.
            cache: Past of their sequences; takes in their keys and values.
            rows_R: [R] places in M after which the next token is wanted; None: after none.

        Returns:
            [R, V] float32 logits; [0, V] where none are wanted.
        """
        x_MC = nn.functional.embedding(tokens_M, self._embedding)
        turn_M1d = self._turns[cache.positions]
        for layer in self._layers:
            x_MC = layer(x_MC, turn_M1d, cache)
        if rows_R is None:
            return x_MC.new_empty((0, self.config.vocab_size), dtype=torch.float32)
        x_RC = x_MC if len(rows_R) == len(x_MC) else x_MC[rows_R]
        normed = functional.rms_norm(x_RC, (x_RC.shape[1],), self._norm, self.config.rms_norm_eps)
        return self._head(normed).float()
