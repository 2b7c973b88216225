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
        """Takes pages, side by side where possible.

        Args:
            count: How many.
            wait_s: How long to wait for room, in seconds; others that wait already come first.

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
        ticket = object()
        with self._room:
            if len(self._queue) >= MAX_WAITING:
                raise self._full(count)
            self._queue.append(ticket)
            try:
                ready = self._room.wait_for(lambda: self._queue[0] is ticket and self._free() >= count, wait_s)
                if not ready:
                    raise self._full(count)
                return self._allocate(count)
            finally:
                self._queue.remove(ticket)
                self._room.notify_all()

    def find(self, tokens: Sequence[int]) -> list[int]:
        """Takes the known pages that hold the start of `tokens`, as many as there are; at least one token is left."""
        pages: list[int] = []
        with self._room:
            for key in _hashes(tokens[: len(tokens) - 1]):
                page = self._known.get(key)
                if page is None:
                    break
                self._known.move_to_end(key)
                self._holders[page] += 1
                pages.append(page)
        return pages

    def learn(self, tokens: Sequence[int], pages: Sequence[int], first: int) -> None:
        """Notes that `pages` hold `tokens` (whole pages, from the start), for those from number `first` on."""
        with self._room:
            for number, key in enumerate(_hashes(tokens)):
                if number >= first and key not in self._known and pages[number] not in self._hash_of:
                    self._known[key] = pages[number]
                    self._hash_of[pages[number]] = key

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
        """While pages are read and written, by the thread that is in here alone."""
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
        fresh = free.copy()
        fresh[list(self._hash_of)] = False
        start = _run(fresh, count)
        if start is None:
            start = _run(free, count)
        if start is not None:
            pages = list(range(start, start + count))
        else:
            unknown = np.flatnonzero(fresh).tolist()
            oldest = [page for page in self._known.values() if free[page]]
            pages = [*unknown, *oldest][:count]
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


def _hashes(tokens: Sequence[int]) -> Iterator[bytes]:
    """For each whole page, a hash of all tokens up to its end."""
    key = b""
    for start in range(0, len(tokens) - PAGE + 1, PAGE):
        key = blake2b(key + np.asarray(tokens[start : start + PAGE], np.int64).tobytes(), digest_size=16).digest()
        yield key
