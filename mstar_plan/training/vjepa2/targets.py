"""What each token of the small encoder learns to say: the teacher's latent, seen through the token's own projection.

V-JEPA 2-AC puts a layer norm without weights on all tokens, which removes their mean and their length. The columns of a
projection have no mean, and a constant beside the latent carries most of the length: what is left of the layer norm is
nearly a scale, and distances between tokens are nearly distances between the teacher's latents.

Shapes: N tokens, D width of a token, Z width of the teacher's latent.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from mstar_plan.errors import ConfigError


class TokenTargets(nn.Module):
    """The map from latents to token grids, and back.

    Args:
        latents: [S, Z] latents of the training frames; their mean and spread are taken from here.
        tokens: N.
        width: D.
        seed: Of the projections.

    Raises:
        ConfigError: The tokens are too narrow for the latent.
    """

    centre: Tensor
    scale: Tensor
    projection: Tensor

    def __init__(self, latents: Tensor, tokens: int, width: int, *, seed: int = 0) -> None:
        super().__init__()
        size = latents.shape[-1]
        if width < size + 2:
            raise ConfigError(f"embed_dim is {width}; a latent of {size} needs at least {size + 2}", field="embed_dim")
        self.register_buffer("centre", latents.mean(0))
        self.register_buffer("scale", (latents - self.centre).square().mean().sqrt())
        self.register_buffer("projection", _projections(tokens, width, size + 1, seed))
        self.constant = math.sqrt(size)

    def forward(self, latent: Tensor) -> Tensor:
        """Maps latents [..., Z] to token grids [..., N, D], each token normed."""
        z = (latent - self.centre) / self.scale
        x = torch.cat([z, z.new_full((*z.shape[:-1], 1), self.constant)], -1)
        tokens: Tensor = torch.einsum("ndz,...z->...nd", self.projection, x)
        return functional.layer_norm(tokens, tokens.shape[-1:])

    def read(self, tokens: Tensor) -> Tensor:
        """Maps token grids [..., N, D] to latents [..., Z]: the mean of what the tokens say."""
        x = torch.einsum("ndz,...nd->...nz", self.projection, tokens)
        z = x[..., :-1] / x[..., -1:].clamp_min(1e-3) * self.constant  # undoes the length that the layer norm took
        latent: Tensor = z.mean(-2) * self.scale + self.centre
        return latent


def _projections(tokens: int, width: int, columns: int, seed: int) -> Tensor:
    """[N, D, columns] with orthonormal columns of mean 0."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(tokens, width, columns, generator=generator)
    basis: Tensor = torch.linalg.qr(drawn - drawn.mean(1, keepdim=True)).Q
    return basis
