"""Values that hold something for their request are released with it, however it ends."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from mstar_plan.errors import CancelledError, ComponentError, OverloadedError
from mstar_plan.runtime.admission import AdmissionConfig
from mstar_plan.runtime.runtime import Runtime, RuntimeConfig
from mstar_plan.walks.component import FunctionComponent, release
from mstar_plan.walks.graph import Graph
from mstar_plan.walks.step import Node, Sequential
from mstar_plan.walks.walk import Walk


class Place:
    def __init__(self) -> None:
        self.released = threading.Event()

    def release(self) -> None:
        self.released.set()


made: list[Place] = []  # places that a component has taken during a walk


def take(place: Place) -> Place:
    made.append(Place())
    assert not place.released.is_set()
    return made[-1]


def use(place: Place, act: Any) -> str:
    assert not place.released.is_set()
    act()
    return "done"


def graph() -> Graph:
    walk = Walk(
        "walk",
        Sequential((Node("take", ("place",), ("inner",)), Node("use", {"place": "inner", "act": "act"}, ("out",)))),
        ("place", "act"),
        ("out",),
    )
    components = {
        "take": FunctionComponent(take, ("place",), ("inner",)),
        "use": FunctionComponent(use, ("place", "act"), ("out",)),
    }
    return Graph("g", components, {"walk": walk})


def nothing() -> None:
    pass


def fail() -> None:
    raise ValueError("no")


def both_released(place: Place) -> bool:
    return place.released.wait(5) and made[-1].released.wait(5)


@pytest.mark.parametrize("here", [True, False])
def test_at_its_end(here: bool) -> None:
    place = Place()
    with Runtime(graph()) as runtime:
        result = runtime.submit("walk", {"place": place, "act": nothing}, here=here).result(5)
        assert result.outputs == {"out": "done"}
        assert both_released(place)


def test_at_an_error() -> None:
    place = Place()
    with Runtime(graph()) as runtime:
        with pytest.raises(ComponentError):
            runtime.submit("walk", {"place": place, "act": fail}).result(5)
        assert both_released(place)


def test_when_it_is_taken_back_while_it_runs() -> None:
    place, started, go_on = Place(), threading.Event(), threading.Event()

    def act() -> None:
        started.set()
        assert go_on.wait(5)

    with Runtime(graph()) as runtime:
        request = runtime.submit("walk", {"place": place, "act": act})
        assert started.wait(5)
        request.cancel()
        go_on.set()
        with pytest.raises(CancelledError):
            request.result(5)
        assert both_released(place)


@pytest.mark.parametrize("others", [0, 2])
def test_what_is_taken_for_one_that_is_gone(others: int) -> None:
    """The request ends while a component takes something for it: alone, or while others wait."""
    place, started, go_on, taken = Place(), threading.Event(), threading.Event(), []

    def slow(given: Place) -> Place:
        taken.append(Place())
        if given is place:
            started.set()
            assert go_on.wait(5)
        return taken[-1]

    walks, gate = graph(), threading.Event()
    walks.components["take"] = FunctionComponent(slow, ("place",), ("inner",))
    with Runtime(walks) as runtime:
        held = runtime.submit("walk", {"place": Place(), "act": lambda: gate.wait(5)})
        waiting = [place, *(Place() for _ in range(others))]
        requests = [runtime.submit("walk", {"place": each, "act": nothing}) for each in waiting]
        gate.set()
        assert started.wait(5)
        requests[0].cancel()
        go_on.set()
        for request in (held, *requests[1:]):
            request.result(5)
    assert len(taken) == 2 + others
    assert all(each.released.is_set() for each in (place, *taken))


def test_one_that_cannot_be_released_keeps_no_other(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Place):
        def release(self) -> None:
            raise ValueError("stuck")

    places = [Place(), Broken(), Place()]
    release(places)
    assert [place.released.is_set() for place in places] == [True, False, True]
    assert "a Broken was not released" in caplog.text
    with Runtime(graph()) as runtime:
        assert runtime.submit("walk", {"place": Broken(), "act": nothing}).result(5).outputs == {"out": "done"}
        assert runtime.submit("walk", {"place": Place(), "act": nothing}).result(5).outputs == {"out": "done"}


def test_when_it_never_began() -> None:
    first, second, go_on = Place(), Place(), threading.Event()
    with Runtime(graph()) as runtime:
        busy = runtime.submit("walk", {"place": first, "act": lambda: go_on.wait(5)})
        waiting = runtime.submit("walk", {"place": second, "act": nothing})
        waiting.cancel()
        assert second.released.wait(5)
        go_on.set()
        busy.result(5)


def test_a_request_that_is_refused_leaves_it_to_its_owner() -> None:
    first, second, go_on = Place(), Place(), threading.Event()
    config = RuntimeConfig(admission=AdmissionConfig(max_requests=1))
    with Runtime(graph(), config=config) as runtime:
        busy = runtime.submit("walk", {"place": first, "act": lambda: go_on.wait(5)})
        with pytest.raises(OverloadedError):
            runtime.submit("walk", {"place": second, "act": nothing})
        assert not second.released.is_set()
        go_on.set()
        busy.result(5)


def test_release_knows_what_is_owned() -> None:
    place = Place()
    release([1, "x", None, place])
    assert place.released.is_set()
