"""EventStream: the values of one running request, as an iterator that takes the request back when it is closed."""

from __future__ import annotations

import queue
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from mstar_plan.runtime.request import Done, Event, Request, Value


class EventSink:
    """Where the workers put a request's values. Apart from the stream, so that a forgotten stream can go."""

    def __init__(self) -> None:
        self.events: queue.SimpleQueue[Value | None] = queue.SimpleQueue()
        self.notify: Callable[[], None] | None = None
        self._counts: dict[str, int] = {}

    def write(self, name: str, value: Any) -> None:
        """A wire got a value."""
        index = self._counts.get(name, 0)
        self._counts[name] = index + 1
        self._put(Value(name, value, index))

    def end(self) -> None:
        """No more values will come."""
        self._put(None)

    def _put(self, event: Value | None) -> None:
        self.events.put(event)
        if self.notify is not None:
            self.notify()


class EventStream:
    """Iterates over `Value`s and, last, `Done`; raises the request's error in its place. For one reader.

    Closing it, or forgetting it, takes the request back.

    Args:
        request: The request whose end is the end of the stream.
        sink: Where its values come in.
    """

    def __init__(self, request: Request, sink: EventSink) -> None:
        self.request = request
        self._sink, self._events = sink, sink.events
        self._over = False
        request.add_done_callback(lambda _: sink.end())

    def on_event(self, notify: Callable[[], None]) -> None:
        """Calls `notify` whenever `poll` may have something new, and once at once; for readers that must not block.

        It is called in a worker's thread, so keep it short.
        """
        self._sink.notify = notify
        notify()

    def poll(self) -> Event | None:
        """The next event if it has come already, else None; raises the request's error in its place."""
        if self._over:
            return None
        try:
            return self._given(self._events.get_nowait())
        except queue.Empty:
            return None

    def close(self) -> None:
        """Ends the iteration, and takes the request back if it still runs."""
        self._over = True
        self.request.cancel()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        if self._over:
            raise StopIteration
        return self._given(self._events.get())

    def _given(self, event: Value | None) -> Event:
        if event is not None:
            return event
        self._over = True
        return Done(self.request.result())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        self.request.cancel()
