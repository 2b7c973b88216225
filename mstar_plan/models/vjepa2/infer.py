"""Sizes of a network from the shapes of its tensors; what shapes cannot tell comes from the nearest published one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from torch import Tensor

from mstar_plan.errors import WeightsError
from mstar_plan.models.vjepa2.config import (
    AC_PREDICTORS,
    ENCODERS,
    ACPredictorConfig,
    EncoderConfig,
    MaskedPredictorConfig,
    TransformerConfig,
)

PUBLISHED_HEAD = 64  # channels of a head in every published encoder but ViT-H (80)
MASKED_PREDICTOR_HEADS = 12

ConfigT = TypeVar("ConfigT", bound=TransformerConfig)


@dataclass(frozen=True)
class Known:
    """What the shapes of a checkpoint do not say; None takes the nearest published size's.

    Attributes:
        img_size: Side of the square pictures in pixels.
        num_frames: Frames of the longest clip.
        heads: Attention heads of the encoder.
        predictor_heads: Those of the predictor.
        use_extrinsics: Whether the action-conditioned predictor uses camera extrinsics.
    """

    img_size: int | tuple[int, int] | None = None
    num_frames: int | None = None
    heads: int | None = None
    predictor_heads: int | None = None
    use_extrinsics: bool = False


def nearest_encoder(width: int, depth: int) -> str:
    """Name of the encoder of ours or the published ones that is most like it."""
    return min(ENCODERS, key=lambda name: (abs(ENCODERS[name].embed_dim - width), abs(ENCODERS[name].depth - depth)))


def nearest_predictor(width: int, depth: int) -> str:
    """Name of the action-conditioned predictor that is most like it."""
    named = AC_PREDICTORS
    return min(named, key=lambda name: (abs(named[name].width - width), abs(named[name].depth - depth)))


def encoder_config(state: Mapping[str, Tensor], known: Known) -> EncoderConfig:
    """Sizes of an encoder.

    Raises:
        WeightsError: It is none, or its heads cannot be told.
    """
    kernel = _shape(state, "patch_embed.proj.weight", (4, 5), "a V-JEPA 2 encoder")
    width, depth = kernel[0], _depth(state, "blocks", "a V-JEPA 2 encoder")
    name = nearest_encoder(width, depth)
    like = ENCODERS[name]
    video = len(kernel) == 5
    return _made(
        EncoderConfig,
        img_size=known.img_size or like.img_size,
        patch_size=kernel[-1],
        num_frames=(known.num_frames or like.num_frames) if video else 1,
        tubelet_size=kernel[2] if video else like.tubelet_size,
        embed_dim=width,
        depth=depth,
        num_heads=_heads(width, known.heads, like, "heads"),
        mlp_ratio=_ratio(state, "blocks", width, like),
        qkv_bias="blocks.0.attn.qkv.bias" in state,
    )


def ac_predictor_config(state: Mapping[str, Tensor], encoder: EncoderConfig, known: Known) -> ACPredictorConfig:
    """Sizes of an action-conditioned predictor behind an encoder.

    Raises:
        WeightsError: It is none, or its heads cannot be told.
    """
    what = "a V-JEPA 2-AC predictor"
    width, embed_dim = _shape(state, "predictor_embed.weight", (2,), what)
    depth = _depth(state, "predictor_blocks", what)
    like = AC_PREDICTORS[nearest_predictor(width, depth)]
    return _made(
        ACPredictorConfig,
        **_shared(encoder),
        num_frames=known.num_frames or like.num_frames,
        embed_dim=embed_dim,
        predictor_embed_dim=width,
        depth=depth,
        num_heads=_heads(width, known.predictor_heads, like, "predictor_heads"),
        mlp_ratio=_ratio(state, "predictor_blocks", width, like),
        qkv_bias="predictor_blocks.0.attn.qkv.bias" in state,
        action_embed_dim=_shape(state, "action_encoder.weight", (2,), what)[1],
        use_extrinsics=known.use_extrinsics,
    )


def masked_predictor_config(state: Mapping[str, Tensor], encoder: EncoderConfig, known: Known) -> MaskedPredictorConfig:
    """Sizes of a predictor of masked tokens behind an encoder.

    Raises:
        WeightsError: It is none, or its heads cannot be told.
    """
    what = "a V-JEPA 2 masked predictor"
    width, embed_dim = _shape(state, "predictor_embed.weight", (2,), what)
    like = MaskedPredictorConfig()
    return _made(
        MaskedPredictorConfig,
        **_shared(encoder),
        num_frames=encoder.num_frames,
        embed_dim=embed_dim,
        predictor_embed_dim=width,
        depth=_depth(state, "predictor_blocks", what),
        num_heads=_heads(width, known.predictor_heads, like, "predictor_heads"),
        mlp_ratio=_ratio(state, "predictor_blocks", width, like),
        qkv_bias="predictor_blocks.0.attn.qkv.bias" in state,
        num_mask_tokens=sum(1 for name in state if re.fullmatch(r"mask_tokens\.\d+", name)),
    )


def _shared(encoder: EncoderConfig) -> dict[str, Any]:
    return {
        "img_size": encoder.img_size,
        "patch_size": encoder.patch_size,
        "tubelet_size": encoder.tubelet_size,
    }


def _made(kind: type[ConfigT], **values: Any) -> ConfigT:
    try:
        return kind(**values)
    except ValueError as error:  # pragma: no cover - a shape that no network has
        raise WeightsError(f"the shapes make no network: {error}") from error


def _shape(state: Mapping[str, Tensor], name: str, ranks: tuple[int, ...], what: str) -> tuple[int, ...]:
    if name not in state or state[name].ndim not in ranks:
        found = ", ".join(list(state)[:3]) or "nothing"
        raise WeightsError(
            f"this is not {what}: there is no {name} as it has one; the file begins with {found}", field=name
        )
    return tuple(state[name].shape)


def _depth(state: Mapping[str, Tensor], prefix: str, what: str) -> int:
    numbers = {int(found[1]) for name in state if (found := re.match(rf"{prefix}\.(\d+)\.", name))}
    if not numbers:
        raise WeightsError(f"this is not {what}: it has no {prefix}.0", field=prefix)
    return max(numbers) + 1


def _ratio(state: Mapping[str, Tensor], prefix: str, width: int, like: TransformerConfig) -> float:
    weight = state.get(f"{prefix}.0.mlp.fc1.weight")
    if weight is None:
        return like.mlp_ratio  # told as missing later
    hidden = weight.shape[0]
    return like.mlp_ratio if int(width * like.mlp_ratio) == hidden else hidden / width


def _heads(width: int, told: int | None, like: TransformerConfig, option: str) -> int:
    heads = told or (like.num_heads if width == like.width else width // PUBLISHED_HEAD)
    if heads < 1 or width % heads or (told is None and width != like.width and width % PUBLISHED_HEAD):
        raise WeightsError(
            f"a width of {width} does not tell the number of attention heads; say it with {option}=", field=option
        )
    return heads
