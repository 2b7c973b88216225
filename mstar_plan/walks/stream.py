"""Streams: the wire between two branches that run side by side, and the policies that cut it into chunks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from mstar_plan.errors import WalkError
from mstar_plan.walks.batch import gather


class ChunkPolicy(Protocol):
    """Says which items a consumer gets next. Items are counted from the start of the stream."""

    def next_chunk(self, emitted: int, available: int, closed: bool) -> tuple[int, int, int] | None:
        """What to hand over now.

        Args:
            emitted: Items that an earlier chunk has handed over as new.
            available: Items that the producer has written so far.
            closed: The producer has ended.

        Returns:
            (start, stop, new): items [start, stop), of which the last `new` are new; None to wait (or, closed, to end).
        """
        ...


def _positive(policy: str, **sizes: int) -> None:
    for name, size in sizes.items():
        if type(size) is not int or size < 1:
            raise WalkError(f"{policy}.{name} is {size!r}; it needs a whole number of at least 1", field=name)


@dataclass(frozen=True)
class FixedChunks:
    """Chunks of `size` new items; the last one may be shorter."""

    size: int = 1

    def __post_init__(self) -> None:
        _positive("FixedChunks", size=self.size)

    def next_chunk(self, emitted: int, available: int, closed: bool) -> tuple[int, int, int] | None:
        """See `ChunkPolicy`."""
        new = min(self.size, available - emitted)
        if new == self.size or (closed and new > 0):
            return emitted, emitted + new, new
        return None


@dataclass(frozen=True)
class SlidingWindow:
    """Windows of `window` items, moved on by `stride`; what is left at the end comes in a last, shorter step."""

    window: int
    stride: int

    def __post_init__(self) -> None:
        _positive("SlidingWindow", window=self.window, stride=self.stride)
        if self.stride > self.window:
            raise WalkError(
                f"SlidingWindow.stride {self.stride} is over its window {self.window}: items would be skipped"
            )

    def next_chunk(self, emitted: int, available: int, closed: bool) -> tuple[int, int, int] | None:
        """See `ChunkPolicy`."""
        want = self.window if emitted == 0 else self.stride
        new = min(want, available - emitted)
        if new == want or (closed and new > 0):
            return max(0, emitted - (self.window - self.stride)), emitted + new, new
        return None


@dataclass(frozen=True)
class LeftContext:
    """Chunks of `size` new items behind up to `left` old ones."""

    size: int
    left: int

    def __post_init__(self) -> None:
        _positive("LeftContext", size=self.size)
        if type(self.left) is not int or self.left < 0:
            raise WalkError(f"LeftContext.left is {self.left!r}; it needs a whole number of at least 0", field="left")

    def next_chunk(self, emitted: int, available: int, closed: bool) -> tuple[int, int, int] | None:
        """See `ChunkPolicy`."""
        new = min(self.size, available - emitted)
        if new == self.size or (closed and new > 0):
            return max(0, emitted - self.left), emitted + new, new
        return None


@dataclass(frozen=True)
class Stream:
    """A wire from a branch that is running to a Loop of another branch.

    Attributes:
        value: Wire that the producing branch writes, again and again.
        into: Wire that the consuming Loop (`stream=into`) sees: the chunk's items stacked to [B, n, ...]; statics come
            in a tuple.
        chunks: How the stream is cut.
        new: Wire that holds how many items at the chunk's end are new, an int: so only chunks that were cut alike are
            joined. None to leave it out.
    """

    value: str
    into: str
    chunks: ChunkPolicy = field(default_factory=FixedChunks)
    new: str | None = None

    def __post_init__(self) -> None:
        if len({self.value, self.into, self.new}) < 3:
            raise WalkError(
                f"stream of {self.value!r} into {self.into!r} (new={self.new!r}) uses one name twice; "
                "give each its own",
                field=self.into,
            )


class StreamBuffer:
    """The items of one stream of one request that are not used up yet."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.closed = False
        self._items: list[Any] = []
        self._dropped = 0  # items that no later chunk can want
        self._emitted = 0

    def push(self, item: Any) -> None:
        """The producer wrote one more item [B, ...]."""
        self._items.append(item)

    def has_chunk(self) -> bool:
        """Whether there is a chunk now; once the stream has closed, False is its end."""
        return self._cut() is not None

    def pop(self) -> tuple[Any, int]:
        """The next chunk [B, n, ...], which is there, and how many of its items are new."""
        cut, available = self._cut(), self._available
        assert cut is not None, "pop() without a chunk"
        start, stop, new = cut
        emitted, name = self._emitted, self.stream.value
        if not (self._dropped <= start <= emitted < stop <= available and new == stop - emitted):
            raise WalkError(
                f"stream of {name!r}: {self.stream.chunks} cut {cut} where {emitted} of {available} items were used "
                "up; a chunk goes on where the last one ended, and says how many of its items are new",
                field=name,
            )
        chunk = gather(self._items[start - self._dropped : stop - self._dropped], f"stream of {name!r}")
        self._emitted = stop
        self._forget(available)
        return chunk, new

    def clear(self) -> None:
        """Nobody will read from it any more."""
        self._items.clear()

    @property
    def _available(self) -> int:
        return self._dropped + len(self._items)

    def _cut(self) -> tuple[int, int, int] | None:
        return self.stream.chunks.next_chunk(self._emitted, self._available, self.closed)

    def _forget(self, available: int) -> None:
        """Drops items before the earliest that the next chunk could start at, so that memory stays bounded."""
        later = self.stream.chunks.next_chunk(self._emitted, max(available, self._emitted) + 1_000_000_000, False)
        keep_from = later[0] if later else self._emitted
        drop = min(keep_from - self._dropped, len(self._items))
        if drop > 0:
            del self._items[:drop]
            self._dropped += drop
