"""Keys and values of a rollout: those of past frames once for all candidates, those of predicted frames for each.

Shapes: L blocks, K candidates, H horizon, C context frames, S tokens of a frame, P = (C - 1) S past tokens, Z channels
of a head.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Self

from torch import Tensor

Pair = tuple[Tensor, Tensor]


class Lane:
    """What one request keeps; made when a rollout begins, written over by every rollout that starts from there.

    Args:
        candidates: K.
        horizon: H; the buffer holds as many frames.
        past: Keys and values [L, heads, P, Z] of the frames before now; None without any.
    """

    __slots__ = ("candidates", "horizon", "own", "past")

    def __init__(self, candidates: int, horizon: int, past: Pair | None) -> None:
        self.candidates, self.horizon, self.past = candidates, horizon, past
        self.own: Pair | None = None

    def buffers(self, blocks: int, heads: int, tokens: int, channels: int, like: Tensor) -> Pair:
        """Keys and values [L, K, heads, tokens, Z] of predicted frames; allocated when first asked for."""
        if self.own is None:
            shape = (blocks, self.candidates, heads, tokens, channels)
            self.own = like.new_empty(shape), like.new_empty(shape)
        return self.own


@dataclass(frozen=True, eq=False)
class RolloutCache:
    """Where a rollout stands: one lane a row of the batch, all at the same step. It joins without a copy.

    A cache is good until a rollout starts again from an earlier one of the same lanes.

    Attributes:
        lanes: One for each of B requests.
        context: C - 1, frames before now.
        step: Predicted frames so far.
    """

    lanes: tuple[Lane, ...]
    context: int
    step: int = 0

    @property
    def frame(self) -> int:
        """Index of the frame that is predicted from next."""
        return self.context + self.step

    def advanced(self) -> RolloutCache:
        """The cache after one more frame."""
        return RolloutCache(self.lanes, self.context, self.step + 1)

    def segments(self, low: int, high: int) -> Iterator[tuple[Lane, slice, slice]]:
        """The lanes behind the rows low..high of [B K]: lane, its candidates, and their places counted from low."""
        start = 0
        for lane in self.lanes:
            first, last = max(low, start), min(high, start + lane.candidates)
            if first < last:
                yield lane, slice(first - start, last - start), slice(first - low, last - low)
            start += lane.candidates

    def join_key(self) -> Hashable:
        """Only rollouts at the same step, of as many candidates, may be joined."""
        return self.context, self.step, self.lanes[0].candidates

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """Puts the lanes side by side."""
        return cls(tuple(lane for part in parts for lane in part.lanes), parts[0].context, parts[0].step)

    def split(self, sizes: Sequence[int]) -> Sequence[RolloutCache]:
        """The inverse of `join`."""
        ends = pairwise(accumulate(sizes, initial=0))
        return [RolloutCache(self.lanes[a:b], self.context, self.step) for a, b in ends]
