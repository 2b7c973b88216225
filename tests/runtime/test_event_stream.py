"""EventStream: numbered values in order, one end, and nothing left behind."""

from __future__ import annotations

import gc

import pytest

from mstar_plan.errors import CancelledError, ComponentError
from mstar_plan.runtime.event_stream import EventSink, EventStream
from mstar_plan.runtime.request import Done, Request, RequestTiming, Value, WalkResult

RESULT = WalkResult({}, {}, RequestTiming())


def test_values_are_numbered_by_name_and_done_comes_last() -> None:
    request, sink = Request(), EventSink()
    events = EventStream(request, sink)
    for name, value in (("a", 1), ("b", 2), ("a", 3)):
        sink.write(name, value)
    request.resolve(RESULT)
    got = list(events)
    assert [(e.name, e.value, e.index) for e in got if isinstance(e, Value)] == [("a", 1, 0), ("b", 2, 0), ("a", 3, 1)]
    assert isinstance(got[-1], Done)
    assert got[-1].result is RESULT
    assert list(events) == []


def test_values_before_a_failure_are_given_first() -> None:
    request, sink = Request(), EventSink()
    events = EventStream(request, sink)
    sink.write("a", 1)
    request.fail(ComponentError("broken"))
    assert next(events).value == 1  # type: ignore[union-attr]
    with pytest.raises(ComponentError, match="broken"):
        next(events)


def test_a_request_that_is_taken_back_elsewhere_ends_the_stream() -> None:
    request = Request()
    events = EventStream(request, EventSink())
    request.cancel()
    with pytest.raises(CancelledError):
        next(events)


def test_closing_takes_the_request_back() -> None:
    request = Request()
    with EventStream(request, EventSink()) as events:
        pass
    assert request.cancelled()
    assert list(events) == []


def test_forgetting_it_takes_the_request_back() -> None:
    request = Request()
    events = EventStream(request, EventSink())
    del events
    gc.collect()
    assert request.cancelled()


def test_closing_after_the_end_changes_nothing() -> None:
    request = Request()
    events = EventStream(request, EventSink())
    request.resolve(RESULT)
    events.close()
    assert request.result(0) is RESULT
    assert not request.cancelled()


def test_a_reader_that_must_not_block_is_called_and_polls() -> None:
    request, sink = Request(), EventSink()
    events = EventStream(request, sink)
    sink.write("a", 1)
    calls: list[str] = []
    events.on_event(lambda: calls.append("rung"))
    assert calls == ["rung"]  # for what had come before
    assert events.poll().value == 1  # type: ignore[union-attr]
    assert events.poll() is None
    sink.write("a", 2)
    request.resolve(RESULT)
    assert calls == ["rung"] * 3
    assert events.poll().value == 2  # type: ignore[union-attr]
    assert isinstance(events.poll(), Done)
    assert events.poll() is None


def test_polling_raises_the_error_of_the_request() -> None:
    request = Request()
    events = EventStream(request, EventSink())
    assert events.poll() is None
    request.fail(ComponentError("broken"))
    with pytest.raises(ComponentError, match="broken"):
        events.poll()
