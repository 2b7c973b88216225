"""SmolVLM's eye: a SigLIP tower for pictures of any size, and a connector that makes one token of a square of patches.

Shapes: B pictures, Y and X pixels, V patches a side, N = V * V patches, D tower width, Q side of a square, T = N / Q^2
tokens, P prefix width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mstar_plan.errors import InvalidInputError
from mstar_plan.models.vla.siglip import SiglipConfig, SiglipTower

MAX_PIXELS = 4096  # a side


class SmolVLMVision(nn.Module):
    """Pictures to tokens of the prefix.

    Args:
        config: Sizes of the tower.
        shuffle: Q.
        width: P.
    """

    def __init__(self, config: SiglipConfig, shuffle: int, width: int) -> None:
        super().__init__()
        self.config, self.shuffle = config, shuffle
        self.tower = SiglipTower(config)
        self.connector = nn.Linear(config.width * shuffle**2, width, bias=False)

    def forward(self, pixels_BCYX: Tensor) -> Tensor:
        """Maps pictures [B, 3, Y_px, X_px] in [-1, 1] to tokens [B, T, P].

        Raises:
            InvalidInputError: A picture is no square of patches that divide into squares of Q.
        """
        side = self._patches_of(pixels_BCYX)
        z_BND = self.tower.patch(pixels_BCYX).flatten(2).transpose(1, 2)
        z_BND = z_BND + self.tower.position[position_ids(side, self._side).to(z_BND.device)]
        for block in self.tower.blocks:
            z_BND = block(z_BND)
        tokens: Tensor = self.connector(pixel_shuffle(self.tower.norm(z_BND), self.shuffle))
        return tokens

    def tokens_of(self, pixels_BCYX: Tensor) -> int:
        """T of these pictures.

        Raises:
            InvalidInputError: See `forward`.
        """
        return (self._patches_of(pixels_BCYX) // self.shuffle) ** 2

    @property
    def _side(self) -> int:
        return self.config.image_size // self.config.patch_size

    def _patches_of(self, pixels: Tensor) -> int:
        """V of these pictures."""
        patch = self.config.patch_size
        fits = pixels.ndim == 4 and pixels.shape[1] == 3 and max(pixels.shape[2:]) <= MAX_PIXELS
        rows, columns = (size // patch for size in pixels.shape[-2:])
        if not fits or rows != columns or rows == 0 or rows % self.shuffle:
            cell = patch * self.shuffle
            what = f"pictures have shape {list(pixels.shape[1:])}; this policy needs squares [3, S, S]"
            raise InvalidInputError(f"{what}, S a multiple of {cell} up to {MAX_PIXELS}", field="images")
        return rows


def position_ids(side: int, trained: int) -> Tensor:
    """Which learned position each patch of a square picture takes: [side * side] int64, row by row.

    A picture of another size than that of the training takes the positions at the same parts of its sides
    (transformers' SmolVLMVisionEmbeddings; in float32, whose rounding decides at the edges).

    Args:
        side: Patches a side.
        trained: Patches a side that there are positions for.
    """
    edges = torch.arange(1 / trained, 1.0, 1 / trained)
    parts = torch.arange(side, dtype=torch.float32) * (1.0 / torch.tensor(side))
    at = torch.bucketize(parts.clamp(max=1.0 - 1e-6), edges, right=True)
    return (at[:, None] * trained + at).flatten()


def pixel_shuffle(z_BND: Tensor, shuffle: int) -> Tensor:
    """Maps patches [B, N, D] to one token of each square of Q x Q: [B, N / Q^2, Q^2 * D], row by row in the square."""
    rows, n, width = z_BND.shape
    side = round(n**0.5)
    cells = side // shuffle
    z = z_BND.view(rows, cells, shuffle, cells, shuffle, width).transpose(2, 3)
    return z.reshape(rows, cells * cells, shuffle * shuffle * width)
