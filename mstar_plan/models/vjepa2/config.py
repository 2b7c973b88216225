"""Sizes of the V-JEPA 2 family, with the published ones by name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields

from mstar_plan.errors import ConfigError


@dataclass(frozen=True)
class TransformerConfig:
    """What the three networks share.

    Attributes:
        img_size: (height, width) of the pictures in pixels.
        patch_size: Side of a patch in pixels.
        num_frames: Frames of the longest clip; 1 makes an encoder of still pictures.
        tubelet_size: Frames that one token covers.
        embed_dim: D, width of the encoder's tokens.
        depth: Blocks.
        num_heads: Attention heads; they divide the width of the blocks.
        mlp_ratio: Hidden width of a block's MLP over the width of the block.
        qkv_bias: Whether queries, keys and values have a bias.
        layer_norm_eps: Epsilon of every layer norm with weights.
    """

    img_size: tuple[int, int] = (256, 256)
    patch_size: int = 16
    num_frames: int = 64
    tubelet_size: int = 2
    embed_dim: int = 1024
    depth: int = 24
    num_heads: int = 16
    mlp_ratio: float = 4.0
    qkv_bias: bool = True
    layer_norm_eps: float = 1e-6

    def __post_init__(self) -> None:
        size = self.img_size
        object.__setattr__(self, "img_size", (size, size) if isinstance(size, int) else tuple(size))
        for each in fields(self):
            value = getattr(self, each.name)
            numbers = value if isinstance(value, tuple) else (value,)
            if not isinstance(value, bool) and not all(math.isfinite(n) and n > 0 for n in numbers):
                raise ConfigError(f"{each.name} is {value}; it needs to be above 0", field=each.name)
        if self.num_frames > 1 and self.num_frames % self.tubelet_size:
            raise ConfigError(f"num_frames {self.num_frames} is no multiple of tubelet_size {self.tubelet_size}")
        if any(side % self.patch_size for side in self.img_size):
            raise ConfigError(f"img_size {self.img_size} is no multiple of patch_size {self.patch_size}")
        if self.width % self.num_heads:
            raise ConfigError(f"num_heads {self.num_heads} does not divide the width {self.width}", field="num_heads")

    @property
    def width(self) -> int:
        """Width of the blocks."""
        return self.embed_dim

    @property
    def grid(self) -> tuple[int, int]:
        """(rows, columns) of patches."""
        return self.img_size[0] // self.patch_size, self.img_size[1] // self.patch_size

    @property
    def tokens_per_frame(self) -> int:
        """N, patches of one frame."""
        return self.grid[0] * self.grid[1]

    @property
    def max_frames(self) -> int:
        """T, tubelets of the longest clip: for the predictors, frames in the longest sequence."""
        return max(1, self.num_frames // self.tubelet_size)


@dataclass(frozen=True)
class EncoderConfig(TransformerConfig):
    """The video encoder."""


@dataclass(frozen=True)
class MaskedPredictorConfig(TransformerConfig):
    """The predictor of masked tokens.

    Attributes:
        predictor_embed_dim: Width of its blocks.
        num_mask_tokens: Learned mask tokens to choose from.
    """

    predictor_embed_dim: int = 384
    depth: int = 12
    num_heads: int = 12
    num_mask_tokens: int = 10

    @property
    def width(self) -> int:
        """Width of the blocks."""
        return self.predictor_embed_dim


@dataclass(frozen=True)
class ACPredictorConfig(TransformerConfig):
    """The action-conditioned predictor.

    Attributes:
        predictor_embed_dim: Width of its blocks.
        action_embed_dim: A, width of an action and of a state; extrinsics have one number less.
        use_extrinsics: Whether camera extrinsics make a token of each frame.
    """

    predictor_embed_dim: int = 1024
    embed_dim: int = 1408
    action_embed_dim: int = 7
    use_extrinsics: bool = False

    @property
    def width(self) -> int:
        """Width of the blocks."""
        return self.predictor_embed_dim

    @property
    def condition_tokens(self) -> int:
        """Tokens of a frame that are no patches: action, state and, if used, extrinsics."""
        return 3 if self.use_extrinsics else 2

    @property
    def sequence_per_frame(self) -> int:
        """S, tokens of a frame in the predictor's sequence."""
        return self.condition_tokens + self.tokens_per_frame


ENCODERS: Mapping[str, EncoderConfig] = {
    "tiny": EncoderConfig(img_size=(64, 64), patch_size=32, num_frames=2, embed_dim=64, depth=4, num_heads=2),
    "mini": EncoderConfig(num_frames=16, embed_dim=192, depth=12, num_heads=3),
    "vit_large": EncoderConfig(),
    "vit_huge": EncoderConfig(embed_dim=1280, depth=32),
    "vit_giant": EncoderConfig(embed_dim=1408, depth=40, num_heads=22, mlp_ratio=48 / 11),
    "vit_giant_384": EncoderConfig(img_size=(384, 384), embed_dim=1408, depth=40, num_heads=22, mlp_ratio=48 / 11),
}
AC_PREDICTORS: Mapping[str, ACPredictorConfig] = {
    "tiny": ACPredictorConfig(
        img_size=(64, 64),
        patch_size=32,
        embed_dim=64,
        predictor_embed_dim=64,
        depth=2,
        num_heads=2,
        action_embed_dim=2,
    ),
    "mini": ACPredictorConfig(num_frames=16, embed_dim=192, predictor_embed_dim=256, depth=6, num_heads=4),
    "vit_ac_giant": ACPredictorConfig(),
}
