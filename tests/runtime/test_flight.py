"""Flight: what a worker may ask of one request under way."""

from __future__ import annotations

import math
import time
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mstar_plan.errors import ComponentError, DeadlineError, LimitExceededError
from mstar_plan.runtime.flight import Arrival, Flight, Route
from mstar_plan.runtime.request import Job, Request
from mstar_plan.walks.step import Loop, Node
from mstar_plan.walks.walk import Walk


class Nobody:
    device: torch.device | None = None

    def send(self, message: Any) -> None:
        raise AssertionError


def arrive(toys: SimpleNamespace, owner: Nobody, **job: Any) -> tuple[Arrival, Any]:
    graph = toys.plan_graph()
    walk = graph.walks["plan"]
    owners = dict.fromkeys((n.name for n in walk.nodes), owner)
    route = Route.of(walk, {n.name: graph.components[n.component] for n in walk.nodes}, owners)
    return Arrival(Job("toy", "plan", toys.plan_values(), time.monotonic(), **job), Request(), route), graph


def test_urgency_is_the_nearer_of_both_times(toys: SimpleNamespace) -> None:
    for job, urgency in (
        ({}, math.inf),
        ({"deadline": 9e9}, 9e9),
        ({"soft_deadline": 8e9}, 8e9),
        ({"deadline": 9e9, "soft_deadline": 8e9}, 8e9),
        ({"deadline": 7e9, "soft_deadline": 8e9}, 7e9),
    ):
        flight = Flight.begin(arrive(toys, Nobody(), **job)[0])
        assert flight is not None
        assert flight.urgency == urgency


def test_one_that_has_ended_does_not_begin(toys: SimpleNamespace) -> None:
    arrival, _ = arrive(toys, Nobody())
    arrival.request.cancel()
    assert Flight.begin(arrival) is None
    late, _ = arrive(toys, Nobody(), deadline=time.monotonic() - 1)
    assert Flight.begin(late) is None
    assert isinstance(late.request.exception(0), DeadlineError)


def test_a_loop_over_its_limit_ends_it_at_the_start() -> None:
    walk = Walk("w", Loop(Node("n", ("x",), ("x",)), times="k", limit=3, carry=("x",)), ("x", "k"), ("x",))
    arrival = Arrival(Job("g", "w", {"x": torch.zeros(1), "k": 4}, 0.0), Request(), Route(walk, {}, {}))
    assert Flight.begin(arrival) is None
    assert isinstance(arrival.request.exception(0), LimitExceededError)


def test_calls_are_made_once(toys: SimpleNamespace) -> None:
    flight = Flight.begin(arrive(toys, Nobody())[0])
    assert flight is not None
    assert [call.node.name for call in flight.new_calls()] == ["see", "aim"]
    assert flight.new_calls() == []


def test_running_alone_stops_when_somebody_comes(toys: SimpleNamespace) -> None:
    owner = Nobody()
    flight = Flight.begin(arrive(toys, owner)[0])
    assert flight is not None
    for call in flight.new_calls():
        assert flight.take(call.node, call.component(call.batch))
    flight.dispatched.clear()
    came = iter([0, 0, 1])
    flight.run_alone(owner, lambda: next(came))
    assert set(flight.component_s) == {"propose", "predict"}
    assert [call.node.name for call in flight.new_calls()] == ["predict"]
    assert not flight.request.done()


def test_running_alone_stops_at_another_owners_node(toys: SimpleNamespace) -> None:
    owner, other = Nobody(), Nobody()
    arrival, _ = arrive(toys, owner)
    arrival.route.owners["predict"] = other  # type: ignore[index]
    flight = Flight.begin(arrival)
    assert flight is not None
    for call in flight.new_calls():
        flight.take(call.node, call.component(call.batch))
    flight.run_alone(owner, lambda: 0)
    assert [call.node.name for call in flight.new_calls()] == ["predict"]


def test_tensors_come_to_the_owners_device_and_the_loops_follow(toys: SimpleNamespace) -> None:
    owner = Nobody()
    owner.device = torch.device("meta")
    flight = Flight.begin(arrive(toys, owner)[0])
    assert flight is not None
    assert not flight.route.mixed
    assert flight.state.device == owner.device
    for call in flight.new_calls():
        assert call.batch["x"].device == owner.device
        flight.take(call.node, call.component(call.batch))
    [propose] = flight.state.ready()
    assert flight.state.inputs_of(propose)["i"].device == owner.device


def test_a_released_flight_holds_no_values(toys: SimpleNamespace) -> None:
    flight = Flight.begin(arrive(toys, Nobody())[0])
    assert flight is not None
    flight.forget()
    assert flight.state.values == {}
    assert flight.new_calls() == []
    with flight.lock:
        flight.forget()  # somebody else is at it: no waiting


def test_a_wrong_answer_ends_it(toys: SimpleNamespace) -> None:
    flight = Flight.begin(arrive(toys, Nobody())[0])
    assert flight is not None
    call = flight.new_calls()[0]
    assert not flight.take(call.node, {"wrong": 1})
    with pytest.raises(ComponentError, match="component 'encode' gave"):
        flight.request.result(0)
