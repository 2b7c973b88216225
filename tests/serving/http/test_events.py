"""Events: what a walk writes reaches an event loop in order, and closing ends the request."""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from mstar_plan.errors import CancelledError, ComponentError, UnavailableError
from mstar_plan.runtime.event_stream import EventSink, EventStream
from mstar_plan.runtime.request import Done, Request, RequestTiming, Value, WalkResult
from mstar_plan.serving.http.events import Events

RESULT = WalkResult({"y": 1}, {}, RequestTiming(largest_batch=3))


def looped(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Runs a test in an event loop."""

    @functools.wraps(test)
    def run() -> None:
        asyncio.run(test())

    return run


def made() -> tuple[Request, EventSink, Events]:
    request, sink = Request(), EventSink()
    return request, sink, Events(EventStream(request, sink))


@looped
async def test_values_of_another_thread_come_in_order() -> None:
    request, sink, events = made()

    def write() -> None:
        for number in range(500):
            sink.write("y", number)
            if number % 50 == 0:
                time.sleep(0.001)
        request.resolve(RESULT)

    threading.Thread(target=write).start()
    got = [event async for event in events]
    assert [event.value for event in got[:-1] if isinstance(event, Value)] == list(range(500))
    assert isinstance(got[-1], Done)
    assert [event async for event in events] == []
    assert events.largest_batch() == 3


@looped
async def test_the_result_alone() -> None:
    request, sink, events = made()
    sink.write("y", 1)
    request.resolve(RESULT)
    assert await events.result() is RESULT


@looped
async def test_the_first_event_stays_to_be_read() -> None:
    request, sink, events = made()
    asyncio.get_running_loop().call_later(0.01, sink.write, "y", 7)
    await events.first()
    request.resolve(RESULT)
    assert [getattr(event, "value", None) for event in [e async for e in events]] == [7, None]


@looped
async def test_an_error_before_the_first_event_ends_it() -> None:
    request, _, events = made()
    request.fail(ComponentError("broken"))
    with pytest.raises(ComponentError):
        await events.first()
    assert [event async for event in events] == []
    assert events.largest_batch() == 0


@looped
async def test_closing_wakes_the_reader_and_ends_the_request() -> None:
    request, _, events = made()
    asyncio.get_running_loop().call_later(0.01, events.close, UnavailableError("going home"))
    with pytest.raises(UnavailableError, match="going home"):
        await events.result()
    assert request.cancelled()
    assert events.ended


@looped
async def test_leaving_ends_the_request() -> None:
    request, _, events = made()
    async with events:
        pass
    assert request.cancelled()
    with pytest.raises(CancelledError):
        await events.result()


@looped
async def test_a_reader_that_is_cancelled_leaves_it_running() -> None:
    request, _, events = made()
    reading = asyncio.create_task(events.result())
    await asyncio.sleep(0.01)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert not request.done()
    events.close()
    assert request.cancelled()


def test_a_loop_that_has_ended_is_no_trouble_for_the_worker() -> None:
    async def begin() -> tuple[Request, EventSink, Events]:
        return made()

    request, sink, events = asyncio.run(begin())
    sink.write("y", 1)
    request.resolve(RESULT)
    assert events.ended
