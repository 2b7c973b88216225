"""Names of tensors: from the published bundles and the transformers layout to those of this package.

Tensors are not read here; what is stored stays where it is until somebody asks.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from mstar_plan.errors import WeightsError

PREFIXES = ("module.", "backbone.")
# Learned or fixed positions that a network with rotary positions does not use, and heads behind the encoder.
UNUSED = re.compile(r"^(encoder\.|predictor\.)?(pos_embed|predictor_pos_embed)$|^(pooler|classifier)\.")

ENCODER_NAMES = (
    (r"^embeddings\.patch_embeddings\.proj\.", "patch_embed.proj."),
    (r"^layer\.(\d+)\.attention\.proj\.", r"blocks.\1.attn.proj."),
    (r"^layer\.(\d+)\.", r"blocks.\1."),
    (r"^layernorm\.", "norm."),
)
PREDICTOR_NAMES = (
    (r"^embeddings\.predictor_embeddings\.", "predictor_embed."),
    (r"^layer\.(\d+)\.attention\.proj\.", r"predictor_blocks.\1.attn.proj."),
    (r"^layer\.(\d+)\.", r"predictor_blocks.\1."),
    (r"^layernorm\.", "predictor_norm."),
    (r"^proj\.", "predictor_proj."),
)
SEPARATE = re.compile(r"^(.*)\.attention\.query\.(weight|bias)$")
MASK_TOKENS = "embeddings.mask_tokens"


@dataclass(frozen=True, eq=False)
class Stored:
    """A tensor of a file, not read yet.

    Attributes:
        shape: Its shape.
        dtype: What it is stored as.
        read: Reads it.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    read: Callable[[], Tensor]


Parts = dict[str, dict[str, Stored]]  # "encoder", "predictor" -> name -> tensor


def without_prefixes(name: str) -> str:
    """The name without what wrappers of modules put into it, wherever they do."""
    for prefix in PREFIXES:
        name = name.replace(prefix, "")
    return name


def put(tensors: dict[str, Stored], name: str, tensor: Stored) -> None:
    """Adds a tensor.

    Raises:
        WeightsError: There is one of this name, written with another prefix: one of them would be lost.
    """
    if name in tensors:
        raise WeightsError(
            f"two tensors are called {name} once prefixes ({', '.join(PREFIXES)}) are left out; remove one", field=name
        )
    tensors[name] = tensor


def is_transformers(names: Iterable[str]) -> bool:
    """Whether the names are those of transformers' VJEPA2Model."""
    return any(name.removeprefix("vjepa2.").startswith("encoder.embeddings.patch_embeddings.") for name in names)


def split_parts(tensors: Mapping[str, Stored]) -> tuple[Parts, list[str]]:
    """Sorts the tensors of a flat file into parts; also returns the names that are not used.

    A name without a part is the encoder's, except for those that only predictors have.
    """
    parts: Parts = {}
    ignored = []
    transformers = is_transformers(tensors)
    for full, tensor in tensors.items():
        name = without_prefixes(full.removeprefix("vjepa2.") if transformers else full)
        part, _, rest = name.partition(".")
        if UNUSED.match(name):
            ignored.append(full)
        elif part in ("encoder", "predictor"):
            put(parts.setdefault(part, {}), rest, tensor)
        else:
            alone = part.startswith("predictor_") or part in ("mask_tokens", "action_encoder", "state_encoder")
            alone = alone or part == "extrinsics_encoder"
            put(parts.setdefault("predictor" if alone else "encoder", {}), name, tensor)
    if transformers:
        parts = {name: from_transformers(name, part) for name, part in parts.items()}
    return parts, ignored


def from_transformers(part: str, tensors: Mapping[str, Stored]) -> dict[str, Stored]:
    """The tensors of a part under our names: queries, keys and values fused, mask tokens apart.

    Names that are not of this layout stay as they are, for the report to list.
    """
    rest = dict(tensors)
    mapped: dict[str, Stored] = {}
    for name in tensors:
        found = SEPARATE.match(name)
        if not found:
            continue
        names = [f"{found[1]}.attention.{each}.{found[2]}" for each in ("query", "key", "value")]
        if all(each in rest for each in names):
            mapped[f"{found[1]}.attn.qkv.{found[2]}"] = _fused([rest.pop(each) for each in names])
    if part == "predictor" and MASK_TOKENS in rest:
        tokens = rest.pop(MASK_TOKENS)
        for index in range(tokens.shape[0] if len(tokens.shape) == 4 else 0):
            read = functools.partial(_row, tokens, index)
            mapped[f"mask_tokens.{index}"] = Stored(tokens.shape[1:], tokens.dtype, read)
    table = ENCODER_NAMES if part == "encoder" else PREDICTOR_NAMES
    return {_renamed(name, table): tensor for name, tensor in (rest | mapped).items()}


def _fused(parts: list[Stored]) -> Stored:
    shape = (sum(each.shape[0] for each in parts), *parts[0].shape[1:])
    return Stored(shape, parts[0].dtype, lambda: torch.cat([each.read() for each in parts]))


def _row(tokens: Stored, index: int) -> Tensor:
    return tokens.read()[index].clone()


def _renamed(name: str, table: Iterable[tuple[str, str]]) -> str:
    for pattern, replacement in table:
        renamed = re.sub(pattern, replacement, name)
        if renamed != name:
            return renamed
    return name
