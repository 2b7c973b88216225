"""Sizes of networks, told from the shapes of their tensors where a file does not say them.

Shapes tell widths, depths, patches and MLPs. They do not tell attention heads, picture size and clip length: these come
from the caller, from config.json, or from the named configuration with the same width and depth.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from mstar_plan.errors import ConfigError, WeightsError
from mstar_plan.models.vjepa2.config import (
    AC_PREDICTORS,
    ENCODERS,
    ACPredictorConfig,
    EncoderConfig,
    MaskedPredictorConfig,
    TransformerConfig,
)

MASKED_PREDICTORS: Mapping[str, MaskedPredictorConfig] = {"masked": MaskedPredictorConfig()}
HEAD_DIM = 64
MAX_DEPTH = 1024

Shapes = Mapping[str, tuple[int, ...]]
ConfigT = TypeVar("ConfigT", bound=TransformerConfig)


@dataclass(frozen=True)
class LoadOptions:
    """What the caller knows better than the file; None leaves it to the file.

    Attributes:
        dtype: Of the loaded weights; None keeps what is stored.
        img_size: Side, or (height, width), of the pictures in pixels.
        num_frames: Frames of the longest clip.
        num_heads: Attention heads of the encoder.
        predictor_heads: Attention heads of the predictor.
        patch_size: Only for a predictor without its encoder.
        layer_norm_eps: Epsilon of the layer norms with weights.
        strict: Refuse tensors that the network does not have; otherwise they are reported and left out.
        context_frames: C of the world model.
        max_translation_m: Largest change of position in one action of the world model, on each axis.
        name: What the world model is called.
        self_test: Compare a world model with the golden vector in its file, if there is one.
    """

    dtype: torch.dtype | None = torch.float32
    img_size: int | tuple[int, int] | None = None
    num_frames: int | None = None
    num_heads: int | None = None
    predictor_heads: int | None = None
    patch_size: int | None = None
    layer_norm_eps: float | None = None
    strict: bool = True
    context_frames: int = 1
    max_translation_m: float = 0.075
    name: str = "vjepa2_ac"
    self_test: bool = True

    def __post_init__(self) -> None:
        if self.dtype not in (None, torch.float32, torch.bfloat16, torch.float16):
            raise ConfigError(f"dtype is {self.dtype}; use float32, bfloat16 or float16", field="dtype")
        for name in ("num_frames", "num_heads", "predictor_heads", "patch_size", "context_frames"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} is {value}; it needs to be at least 1", field=name)
        if not 0 < self.max_translation_m < math.inf:
            raise ConfigError(
                f"max_translation_m is {self.max_translation_m}; it needs to be above 0 m", field="max_translation_m"
            )


def infer_encoder(shapes: Shapes, options: LoadOptions, said: Mapping[str, Any] | None = None) -> EncoderConfig:
    """The encoder's sizes.

    Args:
        shapes: Of its tensors, by our names.
        options: What the caller knows better.
        said: What transformers' config.json says.

    Raises:
        WeightsError: It is no V-JEPA 2 encoder, or the heads cannot be told.
        ConfigError: An option does not fit.
    """
    said = _checked(said)
    kernel = shapes.get("patch_embed.proj.weight", ())
    if len(kernel) not in (4, 5) or 0 in kernel or kernel[1] != 3 or kernel[-1] != kernel[-2]:
        raise _foreign("encoder", shapes, "patch_embed.proj.weight [D, 3, frames, patch, patch]")
    width, patch, still = kernel[0], kernel[-1], len(kernel) == 4
    depth, ratio, bias = _blocks("encoder", "blocks", shapes, width)
    named = _same(ENCODERS, width, depth, patch)
    frames = 1 if still else options.num_frames or said.get("frames_per_clip") or (named or EncoderConfig()).num_frames
    return EncoderConfig(
        img_size=_size(options.img_size or said.get("crop_size") or (named.img_size if named else None), patch),
        patch_size=patch,
        num_frames=frames,
        tubelet_size=2 if still else kernel[2],
        embed_dim=width,
        depth=depth,
        num_heads=_heads("num_heads", width, options.num_heads or said.get("num_attention_heads"), named),
        mlp_ratio=ratio,
        qkv_bias=bias,
        layer_norm_eps=options.layer_norm_eps or float(said.get("layer_norm_eps", 1e-6)),
    )


def infer_predictor(
    shapes: Shapes, encoder: EncoderConfig | None, options: LoadOptions, said: Mapping[str, Any] | None = None
) -> MaskedPredictorConfig | ACPredictorConfig:
    """The predictor's sizes: of the action-conditioned one if it encodes actions, else of that of masked tokens.

    Args:
        shapes: Of its tensors, by our names.
        encoder: Sizes of its encoder, if there is one; says patches, pictures and clips.
        options: What the caller knows better.
        said: What transformers' config.json says.

    Raises:
        WeightsError: It is neither, or the heads cannot be told.
        ConfigError: An option does not fit.
    """
    said = _checked(said)
    width, embed_dim = (*shapes.get("predictor_embed.weight", ()), 0, 0)[:2]
    if not width or not embed_dim:
        raise _foreign("predictor", shapes, "predictor_embed.weight [width, D]")
    if encoder is not None and encoder.embed_dim != embed_dim:
        raise WeightsError(
            f"the predictor takes tokens of width {embed_dim}, the encoder gives {encoder.embed_dim}; "
            "they do not belong together",
            field="predictor",
        )
    depth, ratio, bias = _blocks("predictor", "predictor_blocks", shapes, width)
    acting = "action_encoder.weight" in shapes
    table: Mapping[str, TransformerConfig] = AC_PREDICTORS if acting else MASKED_PREDICTORS
    base = encoder or EncoderConfig(
        img_size=_size(options.img_size, options.patch_size or 16),
        patch_size=options.patch_size or 16,
        num_frames=options.num_frames or EncoderConfig().num_frames,
        num_heads=1,
        embed_dim=embed_dim,
    )
    heads = options.predictor_heads or said.get("pred_num_attention_heads")
    sizes: dict[str, Any] = {
        "img_size": base.img_size,
        "patch_size": base.patch_size,
        "num_frames": base.num_frames,
        "tubelet_size": base.tubelet_size,
        "embed_dim": embed_dim,
        "predictor_embed_dim": width,
        "depth": depth,
        "num_heads": _heads("predictor_heads", width, heads, _same(table, width, depth)),
        "mlp_ratio": ratio,
        "qkv_bias": bias,
        "layer_norm_eps": options.layer_norm_eps or base.layer_norm_eps,
    }
    if acting:
        return ACPredictorConfig(**sizes, action_embed_dim=(*shapes["action_encoder.weight"], 0, 0)[1])
    tokens = sum(bool(re.fullmatch(r"mask_tokens\.\d+", name)) for name in shapes)
    if not tokens:
        raise _foreign("predictor", shapes, "mask_tokens.0 or action_encoder.weight")
    return MaskedPredictorConfig(**sizes, num_mask_tokens=tokens)


def _checked(said: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """What config.json says, after a look at what is used of it."""
    said = said or {}
    for name in ("crop_size", "frames_per_clip", "num_attention_heads", "pred_num_attention_heads", "layer_norm_eps"):
        value = said.get(name, 1)
        if isinstance(value, bool) or not isinstance(value, int if name != "layer_norm_eps" else int | float):
            raise WeightsError(f"config.json says {name} is {value!r}; it needs to be a number", field=name)
    if said.get("hidden_act", "gelu") != "gelu":
        raise WeightsError(f"config.json says hidden_act is {said['hidden_act']!r}; only gelu is computed here")
    return said


def nearest(table: Mapping[str, TransformerConfig], width: int, depth: int) -> str:
    """Name of the configuration that is nearest in width and depth, both counted in octaves."""

    def distance(name: str) -> float:
        known = table[name]
        return abs(math.log2(known.width / max(1, width))) + abs(math.log2(known.depth / max(1, depth)))

    return min(table, key=distance)


def guess_nearest(shapes: Shapes) -> str:
    """The named encoder that tensors of an unknown network come nearest to, by their widest norm and block count."""
    numbers = [int(found[1]) for name in shapes if (found := re.search(r"\.(\d{1,4})\.", f".{name}"))]
    widths = sorted(shape[0] for name, shape in shapes.items() if "norm" in name and len(shape) == 1)
    return nearest(ENCODERS, widths[-1] if widths else 1024, max(numbers, default=23) + 1)


def _blocks(part: str, prefix: str, shapes: Shapes, width: int) -> tuple[int, float, bool]:
    """Depth, MLP ratio, and whether queries, keys and values have a bias."""
    numbers = {found[1] for name in shapes if (found := re.match(rf"{prefix}\.(\d+)\.", name))}
    hidden = (*shapes.get(f"{prefix}.0.mlp.fc1.weight", ()), 0)[0]
    if not numbers or not hidden or len(numbers) > MAX_DEPTH:
        raise _foreign(part, shapes, f"{prefix}.0.mlp.fc1.weight [hidden, width]")
    ratio = hidden / width
    while int(width * ratio) < hidden:  # rounding must not lose a row
        ratio = math.nextafter(ratio, math.inf)
    return len(numbers), ratio, any(name.startswith(prefix) and name.endswith("attn.qkv.bias") for name in shapes)


def _same(table: Mapping[str, ConfigT], width: int, depth: int, patch: int | None = None) -> ConfigT | None:
    fits = (
        each
        for each in table.values()
        if (each.width, each.depth) == (width, depth) and patch in (None, each.patch_size)
    )
    return next(fits, None)


def _heads(option: str, width: int, given: int | None, named: TransformerConfig | None) -> int:
    if given is not None:
        return int(given)
    if named is not None:
        return named.num_heads
    if width % HEAD_DIM:
        raise WeightsError(
            f"the attention heads of width {width} cannot be told from shapes; give {option}=...", field=option
        )
    return width // HEAD_DIM


def _size(given: int | tuple[int, int] | None, patch: int) -> tuple[int, int]:
    if given is None:
        return (max(1, 256 // patch) * patch,) * 2
    return (given, given) if isinstance(given, int) else (int(given[0]), int(given[1]))


def _foreign(part: str, shapes: Shapes, lacking: str) -> WeightsError:
    names = ", ".join(sorted(shapes)[:3]) or "nothing"
    return WeightsError(
        f"this is no V-JEPA 2 {part}: of {len(shapes)} tensors ({names}, ...) none is {lacking}; "
        f"nearest named configuration: {guess_nearest(shapes)}",
        field=part,
    )
