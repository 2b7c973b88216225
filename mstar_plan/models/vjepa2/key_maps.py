"""Names of tensors in other layouts, and ours: those of the published checkpoints without their prefixes."""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch
from torch import Tensor

from mstar_plan.errors import WeightsError

WRAPPERS = ("module.", "backbone.")  # of DistributedDataParallel and of the multi-mask wrapper, anywhere in a name

# transformers' VJEPA2Model; what is not renamed stays.
ENCODER_NAMES = (
    (r"^embeddings\.patch_embeddings\.", "patch_embed."),
    (r"^layer\.", "blocks."),
    (r"^layernorm\.", "norm."),
)
PREDICTOR_NAMES = (
    (r"^embeddings\.predictor_embeddings\.", "predictor_embed."),
    (r"^layer\.", "predictor_blocks."),
    (r"^layernorm\.", "predictor_norm."),
    (r"^proj\.", "predictor_proj."),
)
MASK_TOKENS = "embeddings.mask_tokens"
PROJECTIONS = ("query", "key", "value")


def without_wrappers(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Strips the prefixes of training wrappers."""
    cleaned: dict[str, Tensor] = {}
    for name, tensor in state.items():
        for wrapper in WRAPPERS:
            name = name.replace(wrapper, "")  # noqa: PLW2901 - one after the other
        cleaned[name] = tensor
    return cleaned


def from_transformers(state: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """Encoder and, if there is one, masked predictor of a VJEPA2Model's state.

    Raises:
        WeightsError: One of query, key, value is there without the others.
    """
    parts: dict[str, dict[str, Tensor]] = {}
    for part, names in (("encoder", ENCODER_NAMES), ("predictor", PREDICTOR_NAMES)):
        found = {
            name.removeprefix("vjepa2.").removeprefix(f"{part}."): tensor
            for name, tensor in state.items()
            if name.removeprefix("vjepa2.").startswith(f"{part}.")
        }
        if found:
            parts[part] = _renamed(_joined(_split_mask_tokens(found)), names)
    return parts


def _renamed(state: Mapping[str, Tensor], rules: tuple[tuple[str, str], ...]) -> dict[str, Tensor]:
    result = {}
    for name, tensor in state.items():
        for pattern, ours in rules:
            name = re.sub(pattern, ours, name)  # noqa: PLW2901 - one after the other
        result[name.replace(".attention.", ".attn.")] = tensor
    return result


def _joined(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Query, key and value become one tensor, in this order."""
    result = dict(state)
    for name in state:
        found = re.match(r"(.*\.attention\.)query\.(weight|bias)$", name)
        if not found:
            continue
        names = [f"{found[1]}{each}.{found[2]}" for each in PROJECTIONS]
        missing = [each for each in names if each not in state]
        if missing:
            raise WeightsError(f"tensor {missing[0]} is missing beside {name}", field=missing[0])
        result[f"{found[1]}qkv.{found[2]}"] = torch.cat([result.pop(each) for each in names])
    return result


def _split_mask_tokens(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    result = dict(state)
    tokens = result.pop(MASK_TOKENS, None)
    if tokens is not None:
        result |= {f"mask_tokens.{i}": token for i, token in enumerate(tokens)}
    return result
