"""A toy cache: a Joinable whose forks share pages until one of them writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


class Page:
    """Room for four items [D]. `filled` is how far anyone has written."""

    SIZE = 4

    def __init__(self, width: int) -> None:
        self.items, self.filled = torch.zeros(self.SIZE, width, dtype=torch.float64), 0


@dataclass(frozen=True, eq=False)
class Row:
    pages: tuple[Page, ...] = ()
    length: int = 0

    def append(self, item: Tensor) -> Row:
        slot = self.length % Page.SIZE
        *full, last = self.pages if slot else (*self.pages, Page(len(item)))
        if last.filled > slot:  # a fork has written here: copy what is ours
            mine = Page(len(item))
            mine.items[:slot] = last.items[:slot]
            last = mine
        last.items[slot] = item
        last.filled = slot + 1
        return Row((*full, last), self.length + 1)

    def dense(self) -> Tensor:
        return torch.cat([page.items for page in self.pages])[: self.length]


class Cache:
    """A Joinable: B rows of equal length. Values of it never change; `append` gives a longer one that shares pages."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = tuple(rows)

    def join_key(self) -> int:
        return self.rows[0].length

    @classmethod
    def join(cls, parts: Sequence[Cache]) -> Cache:
        return cls([row for part in parts for row in part.rows])

    def split(self, sizes: Sequence[int]) -> list[Cache]:
        ends = torch.tensor(sizes).cumsum(0).tolist()
        return [Cache(self.rows[end - size : end]) for size, end in zip(sizes, ends, strict=True)]

    def append(self, items: Tensor) -> Cache:
        return Cache([row.append(item) for row, item in zip(self.rows, items, strict=True)])

    def dense(self) -> Tensor:
        return torch.stack([row.dense() for row in self.rows])

    @staticmethod
    def of(items: Tensor) -> Cache:
        """[B, L, D]"""
        cache = Cache([Row()] * len(items))
        for item in items.unbind(1):
            cache = cache.append(item)
        return cache
