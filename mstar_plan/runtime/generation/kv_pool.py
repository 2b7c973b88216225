"""The bounded pool of attention keys and values: pages, who holds them, and finished ones kept for equal prompts.

A request takes all the pages that it can ever need when it comes in, side by side where there is room, so that it can
never run dry halfway and its keys and values are read in place, as one slice. What it does not need goes back at its
end. Pages of whole prompts stay known by a hash of their tokens until somebody needs the room.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import numpy.typing as npt
import torch

from mstar_plan.errors import InvalidInputError, LimitExceededError, OverloadedError

PAGE = 16  # tokens; small enough that a prompt's last, unshared page is cheap to compute again
MAX_WAITING = 256  # requests that wait for room; one more is refused at once


@dataclass(frozen=True)
class KVShape:
    """What one token takes.

    Attributes:
        layers: L.
        heads: G, heads of keys and values.
        width: D, of one head.
    """

    layers: int
    heads: int
    width: int


class KVPool:
    """Pages of keys and values of one model. Thread-safe.

    Args:
        shape: What one token takes.
        tokens: How many fit, rounded down to whole pages.
        dtype: Of keys and values.
        device: Where they are.

    Attributes:
        store: [L, 2, pages * PAGE, G, D]; keys are [:, 0], values [:, 1]. Memory is used up as pages are first written.
    """

    def __init__(
        self,
        shape: KVShape,
        tokens: int,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> None:
        self.pages = tokens // PAGE
        if self.pages < 1:
            raise InvalidInputError(f"the pool is for {tokens} tokens; it needs at least {PAGE}", field="kv_tokens")
        self.shape = shape
        size = (shape.layers, 2, self.pages * PAGE, shape.heads, shape.width)
        self.store = torch.empty(size, dtype=dtype, device=device)
        self._holders = np.zeros(self.pages, np.int32)  # how many sequences hold a page
        self._known: OrderedDict[bytes, int] = OrderedDict()  # hash of all tokens up to a page's end: the page
        self._hash_of: dict[int, bytes] = {}
        self._room = threading.Condition()
        self._stepping = threading.Lock()
        self._queue: deque[object] = deque()  # who waits for room, first come first served
        self._busy = False  # a step reads and writes pages now
        self._later: list[Callable[[], None]] = []  # what waits for the step's end
        self._left_at, self._gap_s = 0.0, 0.5

    @property
    def held(self) -> int:
        """Pages that somebody holds."""
        return int((self._holders > 0).sum())

    @property
    def known(self) -> int:
        """Pages that are kept for equal prompts, held or not."""
        return len(self._known)

    @property
    def waiting(self) -> int:
        """Requests that wait for room."""
        return len(self._queue)

    def take(self, count: int, wait_s: float = 0.0) -> list[int]:
        """Takes fresh pages, side by side where there is room; see `open`."""
        return self.open((), count, wait_s)[1]

    def open(self, tokens: Sequence[int], count: int, wait_s: float = 0.0) -> tuple[list[int], list[int]]:
        """Takes pages for a sequence: known ones that hold the start of `tokens`, and fresh ones.

        Nothing is held while it waits: two that wait for each other's pages would wait for ever.

        Args:
            tokens: What the sequence begins with; at least one token is left to read.
            count: How many pages, known ones included.
            wait_s: How long to wait for room, in seconds; others that wait already come first.

        Returns:
            The known pages, in order, and the fresh ones.

        Raises:
            LimitExceededError: The whole pool is smaller.
            OverloadedError: There was no room in time.
        """
        if count > self.pages:
            raise LimitExceededError(
                f"the request needs room for {count * PAGE} tokens, and the pool holds {self.pages * PAGE}; send a "
                "shorter prompt, or ask for fewer tokens",
                field="max_tokens",
            )
        keys = list(_hashes(tokens[: max(0, len(tokens) - 1)]))[:count]
        ticket = object()
        with self._room:
            if len(self._queue) >= MAX_WAITING:
                raise self._full(count)
            self._queue.append(ticket)
            try:
                if not self._room.wait_for(lambda: self._queue[0] is ticket and self._fits(keys, count), wait_s):
                    raise self._full(count - len(self._find(keys)))
                found = self._find(keys)
                self._holders[found] += 1
                self._touch(keys[: len(found)])
                return found, self._allocate(count - len(found))
            finally:
                self._queue.remove(ticket)
                self._room.notify_all()

    def learn(self, tokens: Sequence[int], pages: Sequence[int], first: int) -> None:
        """Notes that `pages` hold `tokens` (whole pages, from the start), for those from number `first` on."""
        with self._room:
            keys = list(_hashes(tokens))
            for number, key in enumerate(keys):
                if number >= first and key not in self._known and pages[number] not in self._hash_of:
                    self._known[key] = pages[number]
                    self._hash_of[pages[number]] = key
            self._touch(keys)

    def share(self, pages: Sequence[int]) -> None:
        """One more sequence holds these."""
        with self._room:
            self._holders[list(pages)] += 1

    def shared(self, page: int) -> bool:
        """Whether writing to a page would change what others see, or what it is known for."""
        return bool(self._holders[page] > 1) or page in self._hash_of

    def give_back(self, pages: Sequence[int]) -> None:
        """One sequence less holds these."""
        with self._room:
            self._free_pages(pages)

    def between_steps(self, action: Callable[[], None]) -> None:
        """Does something while no page is read or written: now, or else when the step that is under way has ended."""
        with self._room:
            if self._busy:
                self._later.append(action)
            else:
                action()

    @contextmanager
    def step(self) -> Iterator[None]:
        """While pages are read and written; one thread is in here at a time."""
        with self._stepping:
            with self._room:
                self._busy = True
            try:
                yield
            finally:
                with self._room:
                    self._busy = False
                    later, self._later = self._later, []
                    for action in later:
                        action()

    def copy_page(self, source: int, target: int) -> None:
        """Copies keys and values of all layers."""
        old, new = source * PAGE, target * PAGE
        self.store[:, :, new : new + PAGE] = self.store[:, :, old : old + PAGE]

    def forget(self) -> None:
        """Forgets all known prompts."""
        with self._room:
            self._known.clear()
            self._hash_of.clear()
            self._room.notify_all()

    def _free(self) -> int:
        return int((self._holders == 0).sum())

    def _find(self, keys: Sequence[bytes]) -> list[int]:
        pages: list[int] = []
        for key in keys:
            if key not in self._known:
                break
            pages.append(self._known[key])
        return pages

    def _fits(self, keys: Sequence[bytes], count: int) -> bool:
        found = self._find(keys)
        return self._free() - int((self._holders[found] == 0).sum()) >= count - len(found)

    def _touch(self, keys: Sequence[bytes]) -> None:
        """These have just been of use. The last is forgotten first: what is behind a forgotten page is never found."""
        for key in reversed(keys):
            if key in self._known:
                self._known.move_to_end(key)

    def _free_pages(self, pages: Sequence[int]) -> None:
        if not pages:
            return
        np.subtract.at(self._holders, list(pages), 1)
        assert self._holders[list(pages)].min() >= 0, "a page was given back twice"
        now = time.monotonic()
        self._gap_s += 0.1 * (min(now - self._left_at, 10.0) - self._gap_s)
        self._left_at = now
        self._room.notify_all()

    def _allocate(self, count: int) -> list[int]:
        if not count:
            return []
        free = self._holders == 0
        worth = np.zeros(self.pages, np.int64)  # of what a page is known for: the later it was of use, the more
        worth[list(self._known.values())] = np.arange(1, len(self._known) + 1)
        start = _run(free & (worth == 0), count)
        if start is None:
            start = _cheapest(free, worth, count)
        if start is not None:
            pages = list(range(start, start + count))
        else:
            order = np.flatnonzero(free)
            pages = sorted(order[np.argsort(worth[order], kind="stable")][:count].tolist())
        for page in pages:
            key = self._hash_of.pop(page, None)
            if key is not None:
                del self._known[key]
        self._holders[pages] += 1
        return pages

    def _full(self, count: int) -> OverloadedError:
        retry_after_s = min(max(self._gap_s, 0.05), 10.0)
        return OverloadedError(
            f"the pool has no room for {count * PAGE} tokens now ({self._free() * PAGE} of {self.pages * PAGE} are "
            f"free, {len(self._queue)} requests wait); try again in {retry_after_s:.2f} s",
            retry_after_s=retry_after_s,
        )


def _run(free: npt.NDArray[np.bool_], count: int) -> int | None:
    """Start of the shortest run of free pages that has `count`, or None."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], free, [False]]).astype(np.int8)))
    starts, lengths = edges[::2], edges[1::2] - edges[::2]
    fits = np.flatnonzero(lengths >= count)
    return int(starts[fits[np.argmin(lengths[fits])]]) if len(fits) else None


def _cheapest(free: npt.NDArray[np.bool_], worth: npt.NDArray[np.int64], count: int) -> int | None:
    """Start of the `count` free pages side by side that are worth least in all, or None."""
    if count > len(free):
        return None
    held, sums = (np.concatenate([[0], np.cumsum(each)]) for each in (~free, worth))
    starts = np.flatnonzero(held[count:] == held[:-count])
    return int(starts[np.argmin(sums[starts + count] - sums[starts])]) if len(starts) else None


def _hashes(tokens: Sequence[int]) -> Iterator[bytes]:
    """For each whole page, a hash of all tokens up to its end."""
    key = b""
    for start in range(0, len(tokens) - PAGE + 1, PAGE):
        key = blake2b(key + np.asarray(tokens[start : start + PAGE], np.int64).tobytes(), digest_size=16).digest()
        yield key
