"""Residual vector quantisation at several rates: each book codes what the coarser ones have left.

B requests, C latent channels, D width of a code, N codes of a book, T latent steps, K steps of one book (T / stride).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - its usual name

from mstar_plan.errors import InvalidInputError
from mstar_plan.models.snac.config import SnacConfig
from mstar_plan.models.snac.layers import Conv


class Book(nn.Module):
    """One codebook, with the way into its narrow space and back (factorised codes, Yu et al. 2021, ViT-VQGAN)."""

    def __init__(self, config: SnacConfig, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.in_proj = Conv(config.width, config.codebook_dim)
        self.out_proj = Conv(config.codebook_dim, config.width)
        self.codebook = nn.Embedding(config.codebook_size, config.codebook_dim)

    def nearest(self, z_BCT: Tensor) -> Tensor:
        """Codes [B, K] of the latents' means over `stride` steps: nearest in direction."""
        pooled_BCK = F.avg_pool1d(z_BCT, self.stride, self.stride) if self.stride > 1 else z_BCT
        x_BKD = F.normalize(self.in_proj(pooled_BCK).transpose(1, 2), dim=-1)
        book_ND = F.normalize(self.codebook.weight, dim=-1)
        squares_BK1, squares_N = x_BKD.square().sum(-1, keepdim=True), book_ND.square().sum(-1)
        distance_BKN = squares_BK1 - 2 * x_BKD @ book_ND.t() + squares_N
        return distance_BKN.argmin(-1)

    def vectors(self, codes_BK: Tensor) -> Tensor:
        """[B, C, T], each repeated over its `stride` steps."""
        z_BCK: Tensor = self.out_proj(self.codebook(codes_BK).transpose(1, 2))
        return z_BCK.repeat_interleave(self.stride, -1) if self.stride > 1 else z_BCK


class Quantiser(nn.Module):
    """All books, coarsest first."""

    def __init__(self, config: SnacConfig) -> None:
        super().__init__()
        self.quantizers = nn.ModuleList(Book(config, stride) for stride in config.vq_strides)

    def encode(self, z_BCT: Tensor) -> list[Tensor]:
        """Codes [B, T / stride] of each book."""
        codes = []
        for book in self._books:
            codes.append(book.nearest(z_BCT))
            z_BCT = z_BCT - book.vectors(codes[-1])
        return codes

    def decode(self, codes: Sequence[Tensor]) -> Tensor:
        """The sum of the codes' vectors [B, C, T].

        Raises:
            InvalidInputError: Their lengths do not fit together, or a code is not in its book.
        """
        self._check(codes)
        z_BCT = self._books[0].vectors(codes[0])
        for book, codes_BK in zip(self._books[1:], codes[1:], strict=True):
            z_BCT = z_BCT + book.vectors(codes_BK)
        return z_BCT

    @property
    def _books(self) -> list[Book]:
        return [book for book in self.quantizers if isinstance(book, Book)]

    def _check(self, codes: Sequence[Tensor]) -> None:
        books = self._books
        shapes = [list(each.shape) for each in codes]
        steps = {each.shape[-1] * book.stride for each, book in zip(codes, books, strict=False)}
        if len(codes) != len(books) or any(each.ndim != 2 or not each.numel() for each in codes) or len(steps) > 1:
            raise InvalidInputError(
                f"codes have shapes {shapes}; send {len(books)} books [B, n / stride] of strides "
                f"{[book.stride for book in books]}",
                field="codes",
            )
        size = books[0].codebook.num_embeddings
        low, high = (int(f(torch.stack([f(each) for each in codes]))) for f in (torch.min, torch.max))
        if low < 0 or high >= size:
            raise InvalidInputError(f"codes are {low} to {high}; send 0 to {size - 1}", field="codes")
