"""Events: what a running request writes, for an event loop; no thread waits for it."""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import Self

from mstar_plan.errors import CancelledError, MStarError
from mstar_plan.runtime.event_stream import EventStream
from mstar_plan.runtime.request import Done, Event, WalkResult


class _Bell:
    """Rung in a worker's thread, heard in the loop. It knows no stream, so that a forgotten one can go."""

    def __init__(self) -> None:
        self._loop, self._rung = asyncio.get_running_loop(), asyncio.Event()
        self._pending = False  # a wake-up is on its way: one is enough for any number of events

    def ring(self) -> None:
        if not self._pending:
            self._pending = True
            with contextlib.suppress(RuntimeError):  # the loop has been closed: nobody listens
                self._loop.call_soon_threadsafe(self._rung.set)

    async def heard(self) -> None:
        await self._rung.wait()
        self._rung.clear()
        self._pending = False


class Events:
    """Iterates over the `Value`s of a request and, last, `Done`; raises its error in its place. For one reader.

    An async context manager: leaving it takes the request back if it still runs.

    Args:
        stream: The request. From now on it is read here alone.
    """

    def __init__(self, stream: EventStream) -> None:
        self._stream, self._bell = stream, _Bell()
        self._over = False
        self._why: MStarError | None = None
        self._kept: Event | None = None
        stream.on_event(self._bell.ring)

    @property
    def ended(self) -> bool:
        """Whether the request has ended; there may be events left to read."""
        return self._stream.request.ended

    def largest_batch(self) -> int:
        """Most requests that shared a call with it; 0 while it runs, and if it ended with an error."""
        request = self._stream.request
        done = request.done() and request.exception(0) is None
        return request.result(0).timing.largest_batch if done else 0

    def close(self, why: MStarError | None = None) -> None:
        """Takes the request back if it still runs; its reader gets `why`, or CancelledError."""
        if self._why is None:
            self._why = why or CancelledError("the caller took the request back")
        self._stream.close()
        self._bell.ring()

    async def first(self) -> None:
        """Waits for the first event, which stays to be read: an error until then can still be the whole answer.

        Raises:
            MStarError: The request has ended with it.
        """
        try:
            self._kept = await self.__anext__()
        except BaseException:
            self.close()
            raise

    async def result(self) -> WalkResult:
        """What the request gives at its end; values before it are passed over."""
        async for event in self:
            if isinstance(event, Done):
                return event.result
        raise AssertionError("a request ended without a result or an error")

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        if self._kept is not None:
            kept, self._kept = self._kept, None
            return kept
        while not self._over:
            try:
                event = self._stream.poll()
            except MStarError:
                self._over = True
                raise
            if event is not None:
                self._over = isinstance(event, Done)
                return event
            if self._why is not None:
                self._over = True
                raise self._why
            await self._bell.heard()
        raise StopAsyncIteration

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()
