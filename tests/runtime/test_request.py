"""Request: a Future in every way, that can be taken back at any time."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mstar_plan.errors import CancelledError, ComponentError
from mstar_plan.runtime.request import Request, RequestTiming, WalkResult
from mstar_plan.runtime.runtime import Runtime

RESULT = WalkResult({"y": 1}, {}, RequestTiming())


def test_it_is_a_future() -> None:
    request = Request()
    seen: list[Any] = []
    request.add_done_callback(seen.append)
    assert isinstance(request, concurrent.futures.Future)
    assert not request.done()
    with pytest.raises(TimeoutError):
        request.result(0.001)
    assert request.resolve(RESULT)
    assert request.result(0) is RESULT
    assert seen == [request]
    assert not request.cancelled()


def test_the_first_end_counts() -> None:
    request = Request()
    assert request.fail(ComponentError("broken"))
    assert not request.resolve(RESULT)
    assert not request.fail(ComponentError("again"))
    assert not request.cancel()
    with pytest.raises(ComponentError, match="broken"):
        request.result(0)


def test_taking_it_back_calls_the_hook_once() -> None:
    request, calls = Request(), []
    request.on_cancel(lambda: calls.append(1))
    assert request.cancel()
    assert not request.cancel()
    assert request.cancelled()
    assert calls == [1]
    assert isinstance(request.exception(0), CancelledError)
    assert not request.resolve(RESULT)


@pytest.mark.parametrize(
    "end",
    [lambda request: request.resolve(RESULT), lambda request: request.fail(ComponentError("broken")), Request.cancel],
    ids=["resolved", "failed", "cancelled"],
)
def test_an_ended_request_holds_no_hook(end: Callable[[Request], bool]) -> None:
    request = Request()
    request.on_cancel(lambda: None)
    assert end(request)
    assert request._on_cancel is None
    request.on_cancel(lambda: None)
    assert request._on_cancel is None


def test_it_can_be_awaited_and_cancelled_from_asyncio(toys: SimpleNamespace) -> None:
    graph = toys.one_node(lambda b: {"y": b["x"] + 1})

    async def main() -> None:
        x = {"x": torch.zeros(1)}
        with toys.Held(runtime):
            waiting = runtime.submit("work", x)
            wrapped = asyncio.wrap_future(waiting)
            wrapped.cancel()
            with pytest.raises(asyncio.CancelledError):
                await wrapped
            await asyncio.sleep(0)
            assert waiting.cancelled()
            taken_back = asyncio.wrap_future(runtime.submit("work", x))
            other = runtime.submit("work", x)
        assert (await taken_back).outputs["y"].item() == 1
        assert (await asyncio.wrap_future(other)).outputs["y"].item() == 1

    with Runtime(graph) as runtime:
        asyncio.run(main())


def test_wait_and_as_completed_know_it(toys: SimpleNamespace) -> None:
    with Runtime(toys.plan_graph()) as runtime:
        requests = [runtime.submit("plan", toys.plan_values(i)) for i in range(3)]
        done, left = concurrent.futures.wait(requests, timeout=20)
    assert len(done) == 3
    assert not left
    assert {*concurrent.futures.as_completed(requests, timeout=1)} == {*requests}
