"""Rotary positions on three axes (frame, row, column), with the published quirk.

Channels of a head are split into three equal even parts, one an axis; what is left over is not rotated. The published
weights were trained with sines and cosines that are tiled over a part while pairs of neighbours are rotated
(facebookresearch/vjepa2, src/models/utils/modules.py), which is no rotation; it is reproduced as it is.

Shapes: S tokens, C channels of a head.
"""

from __future__ import annotations

import torch
from torch import Tensor

BASE = 10000.0


def axis_channels(head_dim: int) -> int:
    """Channels that one axis rotates."""
    return 2 * (head_dim // 3 // 2)


def rope_table(frames: Tensor, rows: Tensor, columns: Tensor, head_dim: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines [..., S, C] float32 of positions [..., S] on each axis; 1 and 0 where nothing is rotated.

    A token without a place in the picture (an action, a state) has row 0 and column 0: those parts stay as they are.
    """
    part = axis_channels(head_dim)
    omega = torch.arange(part // 2, dtype=torch.float32, device=frames.device)
    omega = 1.0 / BASE ** (omega / (part / 2.0))
    angles = [axis.to(torch.float32)[..., None] * omega for axis in (frames, rows, columns)]
    angle = torch.cat([half for each in angles for half in (each, each)], -1)  # tiled: the quirk
    rest = head_dim - angle.shape[-1]
    cos = torch.nn.functional.pad(angle.cos(), (0, rest), value=1.0)
    sin = torch.nn.functional.pad(angle.sin(), (0, rest), value=0.0)
    return cos, sin


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates neighbouring channels of x [..., S, C] by the table: (a, b) to (a cos - b sin, b cos + a sin)."""
    even, odd = x[..., ::2], x[..., 1::2]
    turned = torch.stack((-odd, even), -1).flatten(-2)
    return x * cos.to(x.dtype) + turned * sin.to(x.dtype)


def patch_places(ids: Tensor, grid: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor]:
    """Frame, row and column of patch ids, which count columns first, then rows, then frames."""
    rows, columns = grid
    return ids // (rows * columns), ids // columns % rows, ids % columns
