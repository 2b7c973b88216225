"""Sequence: the tokens of one answer whose keys and values are in the pool, and the pages that it holds."""

from __future__ import annotations

from collections.abc import Sequence as Tokens
from typing import Self

import numpy as np
import numpy.typing as npt

from mstar_plan.runtime.generation.kv_pool import PAGE, KVPool


def pages_for(tokens: int) -> int:
    """Pages that hold so many tokens."""
    return -(-tokens // PAGE)


class Sequence:
    """One row's past. It owns its pages until `release`, which happens at the latest when nobody refers to it.

    Args:
        pool: Where its keys and values are.
        pages: Pages that it owns from now on: first those that hold `tokens`, then room.
        tokens: Whose keys and values are there already.
    """

    def __init__(self, pool: KVPool, pages: list[int], tokens: Tokens[int] = ()) -> None:
        self.pool, self.tokens, self.released = pool, list(tokens), False
        self._pages = pages
        self._spare: list[int] = []  # for pages that turn out to be shared when they are written
        self._known = len(tokens) // PAGE  # pages that the pool has been told of
        self._lay_out()

    @classmethod
    def open(cls, pool: KVPool, prompt: Tokens[int], length: int, spare: int = 0, wait_s: float = 0.0) -> Self:
        """A sequence that may grow to `length` tokens, with what the pool knows of its prompt.

        Args:
            pool: The pool.
            prompt: Tokens that it will begin with.
            length: Most tokens whose keys and values it will keep.
            spare: Pages beyond that, for forks.
            wait_s: How long to wait for room, in seconds.

        Raises:
            LimitExceededError: The pool is too small for it.
            OverloadedError: There was no room in time.
        """
        found, fresh = pool.open(prompt, pages_for(length) + spare, wait_s)
        sequence = cls(pool, [*found, *fresh[spare:]], prompt[: len(found) * PAGE])
        sequence._spare = fresh[:spare]
        return sequence

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def room(self) -> int:
        """Tokens that it has pages for, those that are there included."""
        return len(self._pages) * PAGE

    def slots(self) -> npt.NDArray[np.int64]:
        """[room] place of each token in the pool's store."""
        return self._slots

    def contiguous(self, length: int) -> int | None:
        """Place of the first of `length` tokens if all lie side by side; else None."""
        return self._pages[0] * PAGE if length <= self._side_by_side else None

    def reserve(self, count: int) -> None:
        """Makes the places of `count` more tokens its own: pages that others see as well are copied first."""
        assert len(self) + count <= self.room, "a sequence outgrew its pages"
        for number in range(len(self) // PAGE, pages_for(len(self) + count)):
            page = self._pages[number]
            if len(self) > number * PAGE and self.pool.shared(page):
                fresh = self._spare.pop()
                self.pool.copy_page(page, fresh)
                self._pages[number] = fresh
                self.pool.give_back([page])
                self._lay_out()

    def extend(self, tokens: Tokens[int]) -> None:
        """Keys and values of these have been written."""
        self.tokens += tokens
        whole = len(self.tokens) // PAGE
        if whole > self._known:
            self.pool.learn(self.tokens[: whole * PAGE], self._pages, self._known)
            self._known = whole

    def fork(self, length: int) -> Sequence:
        """Another sequence with the same past, which may grow to `length` tokens; it takes this one's spare pages."""
        held = pages_for(len(self))
        more = pages_for(length) - held
        spare = 1 if len(self) % PAGE else 0
        assert len(self._spare) >= more + 2 * spare, "a sequence was opened with too few spare pages to fork"
        fresh, self._spare = self._spare[: more + spare], self._spare[more + spare :]
        self.pool.share(self._pages[:held])
        other = Sequence(self.pool, [*self._pages[:held], *fresh[spare:]], self.tokens)
        other._spare = fresh[:spare]
        return other

    def release(self) -> None:
        """Gives all pages back; calling it again does nothing."""
        if not self.released:
            self.released = True
            self.pool.give_back([*self._pages, *self._spare])

    def __del__(self) -> None:
        self.release()

    def _lay_out(self) -> None:
        pages = np.asarray(self._pages, np.int64)
        self._slots: npt.NDArray[np.int64] = (pages[:, None] * PAGE + np.arange(PAGE)).reshape(-1)
        gaps = np.flatnonzero(np.diff(pages) != 1)
        self._side_by_side = PAGE * (int(gaps[0]) + 1 if len(gaps) else len(pages))
