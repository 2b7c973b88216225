"""PrefixCache: keys and values of what a policy has seen, frozen while a chunk of actions is denoised.

Requests join even if their prefixes are of different lengths: the shorter ones are padded to the longest and masked.
That keeps the attention one dense call. Joining copies the prefixes once: as long as the same requests denoise
together, they get the same joined cache again; and those whose prefixes were computed in one call share its memory
without any copy.

Shapes: L layers, B rows, G key-value heads, P positions of the prefix, S actions of a chunk, K = P + S, W head width.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor

from mstar_plan.models.vla.gemma import Places


class PrefixCache:
    """Keys and values of B rows; layer l's are `keys[l]` and `values[l]` [B, G, K, W], of which the last S places are
    room that a denoising call writes and reads within itself. So one cache is used by one call at a time.

    Args:
        kv_LBGKW: Keys of all layers, then values of all layers: [2 L, B, G, K, W].
        seen_BK: Which places hold something, the room included; None: all of them.
        turns_2BSW: Cosines and sines of the actions' positions: [2, B, S, W].
        room: S.
    """

    __slots__ = (
        "__weakref__",
        "_base",
        "_joined",
        "_start",
        "keys",
        "kv_LBGKW",
        "mask",
        "room",
        "seen_BK",
        "turns_2BSW",
        "values",
    )

    def __init__(self, kv_LBGKW: Tensor, seen_BK: Tensor | None, turns_2BSW: Tensor, room: int) -> None:
        self.kv_LBGKW, self.seen_BK, self.turns_2BSW, self.room = kv_LBGKW, seen_BK, turns_2BSW, room
        parts = kv_LBGKW.unbind(0)
        self.keys, self.values = parts[: len(parts) // 2], parts[len(parts) // 2 :]
        self.mask = None if seen_BK is None else seen_BK[:, None, None]  # [B, 1, 1, K], for attention
        self._base: PrefixCache | None = None  # what this is a run of rows of
        self._start = 0
        self._joined: tuple[tuple[weakref.ref[PrefixCache], ...], PrefixCache] | None = None

    @property
    def places(self) -> Places:
        """All keys and values, with their mask."""
        return Places(self.keys, self.values, self.mask)

    @property
    def rows(self) -> int:
        """B."""
        return self.kv_LBGKW.shape[1]

    @property
    def length(self) -> int:
        """P, padding included."""
        return self.kv_LBGKW.shape[3] - self.room

    @property
    def nbytes(self) -> int:
        """Bytes of keys and values."""
        return self.kv_LBGKW.numel() * self.kv_LBGKW.element_size()

    def join_key(self) -> tuple[object, ...]:
        """All but the number of rows and the length of the prefix."""
        kv = self.kv_LBGKW
        return (len(kv), kv.shape[2], kv.shape[4], self.room, kv.dtype, kv.device)

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """Joins along B, padded to the longest; the same parts give the same cache again while they live."""
        first, others = parts[0], parts[1:]
        base = _common_base(parts)
        if base is not None:
            return base._rows(first._start, sum(part.rows for part in parts))  # type: ignore[return-value]
        if first._joined is not None:
            refs, joined = first._joined
            if len(refs) == len(others) and all(ref() is part for ref, part in zip(refs, others, strict=True)):
                return joined  # type: ignore[return-value]
        made = cls._copied(parts)
        first._joined = tuple(weakref.ref(part) for part in others), made
        return made

    @classmethod
    def _copied(cls, parts: Sequence[Self]) -> Self:
        first, longest = parts[0], max(part.length for part in parts)
        shape = first.kv_LBGKW.shape
        rows = sum(part.rows for part in parts)
        kv = first.kv_LBGKW.new_zeros(shape[0], rows, shape[2], longest + first.room, shape[4])
        at = 0
        for part in parts:
            kv[:, at : at + part.rows, :, : part.length] = part.kv_LBGKW[:, :, :, : part.length]
            at += part.rows
        seen: Tensor | None = None
        if any(part.seen_BK is not None or part.length != longest for part in parts):
            seen = torch.cat([part._seen(longest) for part in parts])
        return cls(kv, seen, torch.cat([part.turns_2BSW for part in parts], 1), first.room)

    def split(self, sizes: Sequence[int]) -> list[Self]:
        """Parts of `sizes` rows, which share the memory."""
        starts = [sum(sizes[:at]) for at in range(len(sizes))]
        return [self._rows(start, size) for start, size in zip(starts, sizes, strict=True)]

    def to(self, device: torch.device) -> Self:
        """The same on another device."""
        seen = None if self.seen_BK is None else self.seen_BK.to(device)
        return type(self)(self.kv_LBGKW.to(device), seen, self.turns_2BSW.to(device), self.room)

    def _rows(self, start: int, size: int) -> Self:
        if size == self.rows:
            return self
        seen = None if self.seen_BK is None else self.seen_BK.narrow(0, start, size)
        kv, turns = self.kv_LBGKW.narrow(1, start, size), self.turns_2BSW.narrow(1, start, size)
        part = type(self)(kv, seen, turns, self.room)
        part._base, part._start = (self, start) if self._base is None else (self._base, self._start + start)
        return part

    def _seen(self, length: int) -> Tensor:
        """Which places hold something, once the prefix is padded to `length`."""
        seen = torch.ones(self.rows, length + self.room, dtype=torch.bool, device=self.kv_LBGKW.device)
        if self.seen_BK is not None:
            seen[:, : self.length] = self.seen_BK[:, : self.length]
        seen[:, self.length : length] = False
        return seen


def _common_base(parts: Sequence[PrefixCache]) -> PrefixCache | None:
    """The cache that these are successive rows of."""
    base, at = parts[0]._base, parts[0]._start
    for part in parts:
        if base is None or part._base is not base or part._start != at:
            return None
        at += part.rows
    return base
