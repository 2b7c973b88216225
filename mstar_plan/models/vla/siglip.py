"""SigLIP vision tower: a ViT with learned positions and no class token (Zhai et al. 2023); weights under our names.

Shapes: B images, C = 3 channels, Y and X pixels, N = patches, D width, F hidden width.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional

from mstar_plan.errors import ConfigError, InvalidInputError


@dataclass(frozen=True)
class SiglipConfig:
    """Sizes of the tower; the defaults are so400m at 224 pixels, as PaliGemma has it.

    Attributes:
        width: D.
        depth: Blocks.
        heads: Of each block.
        hidden: F of the MLP.
        image_size: Side of the square image, in pixels.
        patch_size: Side of a patch, in pixels.
        eps: Of the layer norms.
    """

    width: int = 1152
    depth: int = 27
    heads: int = 16
    hidden: int = 4304
    image_size: int = 224
    patch_size: int = 14
    eps: float = 1e-6

    def __post_init__(self) -> None:
        for name in ("width", "depth", "heads", "hidden", "image_size", "patch_size"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise ConfigError(f"vision.{name} is {value!r}; it needs a whole number of at least 1", field=name)
        if self.width % self.heads:
            raise ConfigError(f"vision width {self.width} does not divide among {self.heads} heads", field="heads")
        if self.patch_size > self.image_size:
            what = f"patch_size {self.patch_size} is larger than the image of {self.image_size}"
            raise ConfigError(what, field="patch_size")

    @property
    def patches(self) -> int:
        """N of one image."""
        return (self.image_size // self.patch_size) ** 2


class SiglipBlock(nn.Module):
    """Pre-norm attention and MLP; queries, keys and values in one projection."""

    def __init__(self, config: SiglipConfig) -> None:
        super().__init__()
        width = config.width
        self.heads = config.heads
        self.norm1 = nn.LayerNorm(width, eps=config.eps)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width, eps=config.eps)
        self.fc1 = nn.Linear(width, config.hidden)
        self.fc2 = nn.Linear(config.hidden, width)

    def forward(self, z_BND: Tensor) -> Tensor:
        """Maps [B, N, D] to [B, N, D]."""
        rows, n, width = z_BND.shape
        qkv = self.qkv(self.norm1(z_BND)).view(rows, n, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(q, k, v)
        z_BND = z_BND + self.out(attended.transpose(1, 2).reshape(rows, n, width))
        hidden_BNF = functional.gelu(self.fc1(self.norm2(z_BND)), approximate="tanh")
        out: Tensor = z_BND + self.fc2(hidden_BNF)
        return out


class SiglipTower(nn.Module):
    """Images to patch features."""

    def __init__(self, config: SiglipConfig) -> None:
        super().__init__()
        self.config = config
        self.patch = nn.Conv2d(3, config.width, config.patch_size, config.patch_size)
        self.position = nn.Parameter(
            nn.init.normal_(self.patch.weight.new_empty(config.patches, config.width), std=0.02)
        )
        self.blocks = nn.ModuleList([SiglipBlock(config) for _ in range(config.depth)])
        self.norm = nn.LayerNorm(config.width, eps=config.eps)

    def forward(self, pixels_BCYX: Tensor) -> Tensor:
        """Maps images [B, 3, Y_px, X_px] in [-1, 1] to features [B, N, D].

        Raises:
            InvalidInputError: The images are of another size than the tower's.
        """
        side = self.config.image_size
        if pixels_BCYX.shape[1:] != (3, side, side):
            what = f"images have shape {list(pixels_BCYX.shape[1:])}; this policy needs [3, {side}, {side}]"
            raise InvalidInputError(f"{what}: resize them", field="images")
        z_BND = self.patch(pixels_BCYX).flatten(2).transpose(1, 2) + self.position
        for block in self.blocks:
            z_BND = block(z_BND)
        out: Tensor = self.norm(z_BND)
        return out


def siglip_names(config: SiglipConfig, there: str, here: str) -> dict[str, tuple[str, ...]]:
    """Published names of the tower's tensors, by ours; several are stacked along axis 0 in their order.

    Args:
        config: Sizes.
        there: Prefix of the published names, with its dot: before "embeddings".
        here: Prefix of ours, with its dot.
    """
    names: dict[str, tuple[str, ...]] = {
        f"{here}patch.weight": (f"{there}embeddings.patch_embedding.weight",),
        f"{here}patch.bias": (f"{there}embeddings.patch_embedding.bias",),
        f"{here}position": (f"{there}embeddings.position_embedding.weight",),
    }
    for i in range(config.depth):
        ours, theirs = f"{here}blocks.{i}.", f"{there}encoder.layers.{i}."
        for kind in ("weight", "bias"):
            names[f"{ours}norm1.{kind}"] = (f"{theirs}layer_norm1.{kind}",)
            names[f"{ours}qkv.{kind}"] = tuple(f"{theirs}self_attn.{p}_proj.{kind}" for p in "qkv")
            names[f"{ours}out.{kind}"] = (f"{theirs}self_attn.out_proj.{kind}",)
            names[f"{ours}norm2.{kind}"] = (f"{theirs}layer_norm2.{kind}",)
            names[f"{ours}fc1.{kind}"] = (f"{theirs}mlp.fc1.{kind}",)
            names[f"{ours}fc2.{kind}"] = (f"{theirs}mlp.fc2.{kind}",)
    for kind in ("weight", "bias"):
        names[f"{here}norm.{kind}"] = (f"{there}post_layernorm.{kind}",)
    return names
