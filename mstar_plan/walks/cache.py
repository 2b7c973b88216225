"""A cache's face: how a component sees the keys and values of positions that were computed before, whoever keeps them.

Shapes: M new positions of all rows together, H heads, G heads of keys and values (H is a multiple of G), D head width.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class SequenceCache(Protocol):
    """Several sequences of different lengths in one call; each brings some new positions, packed along M.

    Attributes:
        positions: [M] int64, place of each new position in its sequence, from 0.
    """

    positions: Tensor

    def attend(self, layer: int, q_MHD: Tensor, k_MGD: Tensor, v_MGD: Tensor) -> Tensor:
        """Keeps the new keys and values of a layer, and attends causally over all that each position may see.

        Args:
            layer: Which layer, from 0.
            q_MHD: Queries, not scaled; scaling is by 1 / sqrt(D).
            k_MGD: New keys.
            v_MGD: New values.

        Returns:
            [M, H * D].
        """
        ...
