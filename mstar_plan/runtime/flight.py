"""Flight: one request that is under way in this process, and Call: one node of it that waits to be run."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from mstar_plan.errors import DeadlineError, MStarError
from mstar_plan.runtime.engine import join_key
from mstar_plan.runtime.failure import as_error
from mstar_plan.runtime.request import Job, Request, RequestTiming, WalkResult
from mstar_plan.walks.batch import Batch
from mstar_plan.walks.component import Component, Outputs
from mstar_plan.walks.state import OnWrite, WalkState
from mstar_plan.walks.step import Node
from mstar_plan.walks.walk import Walk


class Owner(Protocol):
    """Whoever runs nodes: a worker."""

    device: torch.device | None

    def send(self, message: Any) -> None:
        """Hands over a call."""
        ...


@dataclass(frozen=True, eq=False)
class Route:
    """A walk, ready to run.

    Attributes:
        walk: The walk.
        components: {node: component}.
        owners: {node: who runs it}.
        device: Where all owners want their tensors, if they agree; None leaves them where they are.
        mixed: Owners want them on several devices: what a node reads may have to be moved.
    """

    walk: Walk
    components: Mapping[str, Component]
    owners: Mapping[str, Owner]
    device: torch.device | None = None
    mixed: bool = False

    @staticmethod
    def of(walk: Walk, components: Mapping[str, Component], owners: Mapping[str, Owner]) -> Route:
        """The route of a walk over its owners."""
        devices = {owner.device for owner in owners.values()}
        return Route(walk, components, owners, next(iter(devices)) if len(devices) == 1 else None, len(devices) > 1)


@dataclass(frozen=True, eq=False)
class Arrival:
    """A request that has come in and has not begun.

    Attributes:
        job: What is wanted.
        request: The future to end.
        route: Its walk.
        on_write: Called with every value that a node writes, for streams.
    """

    job: Job
    request: Request
    route: Route
    on_write: OnWrite | None = None


class Flight:
    """One request under way. Workers touch it under its `lock` alone."""

    __slots__ = ("began", "component_s", "deadline", "dispatched", "job", "largest_batch", "lock", "request", "route",
                 "state", "urgency")  # fmt: skip

    def __init__(self, arrival: Arrival) -> None:
        job, route = arrival.job, arrival.route
        self.job, self.request, self.route = job, arrival.request, route
        self.deadline = job.deadline
        self.urgency = job.deadline if job.soft_deadline is None else min(job.deadline, job.soft_deadline)
        self.component_s: defaultdict[str, float] = defaultdict(float)
        self.largest_batch = 1
        self.began: float | None = None  # its first call
        self.dispatched: set[str] = set()  # nodes that wait in a worker or are being run
        self.lock = threading.Lock()
        self.state = WalkState(
            route.walk,
            moved(job.values, route.device),
            soft_deadline=job.soft_deadline,
            policy=job.policy,
            on_write=arrival.on_write,
        )

    @staticmethod
    def begin(arrival: Arrival) -> Flight | None:
        """Starts a request; None if that has ended it."""
        if _late(arrival.job, arrival.request, time.monotonic()) or arrival.request.ended:
            return None
        try:
            return Flight(arrival)
        except BaseException as raised:
            arrival.request.fail(as_error(f"walk {arrival.job.walk!r}", raised))
            return None

    def alive(self, now: float) -> bool:
        """False once it has ended; passing its deadline ends it."""
        if now > self.deadline:
            _late(self.job, self.request, now)
        return not self.request.ended

    def read(self, node: Node, owner: Owner) -> Batch:
        """What the node reads, on its owner's device."""
        if self.route.mixed:
            read = {wire: self.state.values[wire] for _, wire in node.inputs}
            self.state.values.update(moved(read, owner.device))
        return self.state.inputs_of(node)

    def run_alone(self, owner: Owner, came: Callable[[], int]) -> None:
        """Runs node after node while nothing `came` in, the one ready node is the owner's, and time is left."""
        components, owners, mixed, deadline = self.route.components, self.route.owners, self.route.mixed, self.deadline
        spent, clock = self.component_s, time.monotonic
        at = ""

        def call(node: Node, batch: Batch) -> Outputs | None:
            nonlocal at
            at = node.name
            start = clock()
            if came() or owners[at] is not owner or (start > deadline and not self.alive(start)):
                return None
            if mixed:
                batch = self.read(node, owner)
            try:
                outputs = components[at](batch)
            except BaseException as raised:  # all of them: in a worker's thread nobody else could tell the caller
                self.fail(as_error(f"component {node.component!r}", raised))
                return None
            spent[node.component] += clock() - start
            return {} if outputs is None else outputs

        try:
            self.state.run_alone(call)
        except BaseException as raised:
            self.fail(as_error(f"walk {self.job.walk!r} after node {at!r}", raised))
        self.dispatched.clear()

    def take(self, node: Node, outputs: Outputs) -> bool:
        """Takes a node's answer; False if that ended the request with an error."""
        try:
            self.state.complete(node, outputs)
        except BaseException as raised:
            return self.fail(as_error(f"walk {self.job.walk!r} after node {node.name!r}", raised))
        return True

    def spend(self, component: str, seconds: float, requests: int) -> None:
        """Notes a call that it took part in."""
        self.component_s[component] += seconds
        self.largest_batch = max(self.largest_batch, requests)

    def forget(self) -> None:
        """Frees what an ended flight holds. If another worker is at it right now, that one sees the end and does it."""
        if self.lock.acquire(blocking=False):
            self.state.release()
            self.lock.release()

    def fail(self, error: MStarError) -> bool:
        """Ends it with an error; always False, for `return flight.fail(...)`."""
        self.request.fail(error)
        return False

    def result(self) -> WalkResult:
        """What it gives, once its walk has finished."""
        now, state = time.monotonic(), self.state
        began = self.began if self.began is not None else now
        timing = RequestTiming(began - self.job.submitted, now - began, dict(self.component_s), self.largest_batch)
        return WalkResult(state.outputs(), state.loop_ends, timing)

    def new_calls(self) -> Sequence[Call]:
        """Calls for the nodes that became ready since the last time."""
        fresh = [node for node in self.state.ready() if node.name not in self.dispatched]
        self.dispatched.update(node.name for node in fresh)
        return [Call(self, node, self.read(node, self.route.owners[node.name])) for node in fresh]


def moved(values: Mapping[str, Any], device: torch.device | None) -> Mapping[str, Any]:
    """The values, tensors on `device`; as they are, if it is None."""
    if device is None:
        return values
    return {name: value.to(device) if isinstance(value, Tensor) else value for name, value in values.items()}


class Call:
    """One ready node of one flight, with what it reads."""

    __slots__ = ("_key", "batch", "component", "flight", "node", "turn")

    def __init__(self, flight: Flight, node: Node, batch: Batch) -> None:
        self.flight, self.node, self.batch = flight, node, batch
        self.component = flight.route.components[node.name]
        self.turn = 0
        self._key: Hashable = _UNKNOWN

    @property
    def key(self) -> Hashable:
        """Calls with equal keys may be joined. Computed only when there is somebody to join with."""
        if self._key is _UNKNOWN:
            key = None if self.flight.job.deterministic else join_key(self.component, self.batch)
            self._key = id(self) if key is None else (id(self.component), key)
        return self._key

    @property
    def alone(self) -> bool:
        """Whether it joins with no other call."""
        return self.key == id(self)


_UNKNOWN = object()


def _late(job: Job, request: Request, now: float) -> bool:
    """Ends the request if it has passed its deadline."""
    if now <= job.deadline:
        return False
    request.fail(
        DeadlineError(
            f"walk {job.walk!r} passed its deadline of {job.deadline - job.submitted:.3g} s (after "
            f"{now - job.submitted:.3g} s); allow more time, or give a soft time budget to an anytime loop"
        )
    )
    return True
