"""An image encoder that is cheap on a CPU: non-overlapping patches, residual convolutions on their grid, one vector.

Shapes: B frames, G grid side, C width, D latent.
"""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.fusion import fuse_linear_bn_eval


class PatchEncoder(nn.Module):
    """Frames to latents: a ViT's patch stem and learned positions, ResNet-like blocks, a projection with BatchNorm.

    Args:
        image_size: Side of the square frames in pixels.
        patch: Side of a patch in pixels; it divides `image_size`.
        width: C, channels of the grid.
        blocks: Residual 3x3 convolutions.
        hidden: Width of the layer between grid and latent.
        latent: D.
    """

    def __init__(self, *, image_size: int, patch: int, width: int, blocks: int, hidden: int, latent: int) -> None:
        super().__init__()
        self.patch, self.grid = patch, image_size // patch
        self.embed = nn.Linear(patch * patch * 3, width)
        self.position = nn.Parameter(0.02 * torch.randn(self.grid * self.grid, width))
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(blocks))
        self.project = nn.Linear(self.grid * self.grid * width, hidden)
        self.norm: nn.Module = nn.BatchNorm1d(hidden)
        self.out = nn.Linear(hidden, latent)

    def forward(self, frames: Tensor) -> Tensor:
        """Maps [B, H_px, W_px, 3] uint8 to [B, D]."""
        batch, g, p = len(frames), self.grid, self.patch
        x = frames.to(self.position.dtype) / 127.5 - 1.0
        x = x.view(batch, g, p, g, p, 3).permute(0, 1, 3, 2, 4, 5).reshape(batch, g * g, p * p * 3)
        x = functional.gelu(self.embed(x) + self.position)
        x = x.view(batch, g, g, -1).permute(0, 3, 1, 2)  # [B, C, G, G], channels last in memory
        for conv in self.convs:
            x = x + functional.gelu(conv(x))
        x = x.permute(0, 2, 3, 1).reshape(batch, -1)
        result: Tensor = self.out(functional.gelu(self.norm(self.project(x))))
        return result

    def folded(self) -> PatchEncoder:
        """Returns a copy for inference, with the BatchNorm's statistics folded into the projection."""
        copy = deepcopy(self).eval().requires_grad_(False)
        assert isinstance(copy.norm, nn.BatchNorm1d)
        copy.project = fuse_linear_bn_eval(copy.project, copy.norm)
        copy.norm = nn.Identity()
        return copy
