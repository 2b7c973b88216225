"""Runtime: the one door. Submits requests to walks, streams their values, and takes them back."""

from __future__ import annotations

import math
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from mstar_plan.errors import InvalidInputError, NotFoundError, UnavailableError, did_you_mean
from mstar_plan.runtime.admission import Admission, AdmissionConfig
from mstar_plan.runtime.event_stream import EventSink, EventStream
from mstar_plan.runtime.executor import Executor, LocalExecutor
from mstar_plan.runtime.placement import Placement
from mstar_plan.runtime.request import Job, Request
from mstar_plan.runtime.scheduler import SchedulerConfig
from mstar_plan.walks.component import ComputePolicy, release
from mstar_plan.walks.graph import Graph
from mstar_plan.walks.state import check_inputs
from mstar_plan.walks.step import writes_of
from mstar_plan.walks.walk import Walk


@dataclass(frozen=True)
class RuntimeConfig:
    """How many requests are let in, and how their calls are chosen."""

    admission: AdmissionConfig = field(default_factory=AdmissionConfig)
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)


class Runtime:
    """Runs requests on walks. Thread-safe; a context manager that drains on a clean exit and cancels on an error.

    Args:
        graphs: One graph, or several by name.
        placement: Who runs what; everything in one group if None.
        executor: Who owns the workers; a LocalExecutor if None. It is started here and closed with the runtime.
        config: Bounds and choices.
    """

    def __init__(
        self,
        graphs: Mapping[str, Graph] | Graph,
        *,
        placement: Placement | None = None,
        executor: Executor | None = None,
        config: RuntimeConfig | None = None,
    ) -> None:
        self.config = config or RuntimeConfig()
        self.graphs = {graphs.name: graphs} if isinstance(graphs, Graph) else dict(graphs)
        self.placement = placement or Placement.single(self.graphs)
        self._executor = executor or LocalExecutor(self.config.scheduler)
        self._admission = Admission(self.config.admission)
        self._open: set[Request] = set()
        self._changed = threading.Condition()
        self._closed = False
        self._executor.start(self.graphs, self.placement)
        self._finalizer = weakref.finalize(self, self._executor.close)  # for those who forget to close

    def submit(
        self,
        walk: str,
        values: Mapping[str, Any],
        *,
        graph: str | None = None,
        deadline_s: float | None = None,
        soft_time_s: float | None = None,
        session: str = "",
        deterministic: bool = False,
        policy: ComputePolicy | None = None,
        here: bool = False,
    ) -> Request:
        """Starts a request.

        Args:
            walk: Name of the walk.
            values: A value for each of its inputs; tensors lead with the same B, and must not be changed meanwhile.
            graph: Name of its graph; may be left out where there is one.
            deadline_s: Seconds from now; passing it ends the request with DeadlineError at the next boundary.
            soft_time_s: Seconds from now after which anytime loops end with the best so far.
            session: Name that fairness between clients is kept by; empty for nobody's.
            deterministic: Its calls are never joined with others, so its bytes cannot depend on them.
            policy: Compute policy of its loops; None is off, bit for bit.
            here: You wait for the result at once: the worker may use your thread for it, if it has nothing else to do.
                Then this returns when the request has ended. It saves waking two threads.

        Raises:
            NotFoundError: There is no such graph or walk.
            InvalidInputError: The values do not fit the walk's inputs, or a time is not positive.
            OverloadedError: Too many requests are waiting already.
            UnavailableError: The runtime is closed.
        """
        job = self._job(
            walk,
            values,
            graph=graph,
            deadline_s=deadline_s,
            soft_time_s=soft_time_s,
            session=session,
            deterministic=deterministic,
            policy=policy,
            here=here,
        )
        return self._send(job, None)

    def stream(
        self,
        walk: str,
        values: Mapping[str, Any],
        *,
        emit: Sequence[str],
        graph: str | None = None,
        deadline_s: float | None = None,
        soft_time_s: float | None = None,
        session: str = "",
        deterministic: bool = False,
        policy: ComputePolicy | None = None,
    ) -> EventStream:
        """Starts a request and iterates over the values that it writes, while it runs.

        Args:
            walk: Name of the walk.
            values: See `submit`, as for the other arguments.
            emit: Wires whose values are wanted: a `Value` each time a node (or a loop's end) writes one.

        Returns:
            An iterator of `Value`s and, last, `Done`. An error of the request is raised in its place. Closing the
            iterator cancels the request.

        Raises:
            NotFoundError: The walk writes no such wire; and as `submit`.
        """
        job = self._job(
            walk,
            values,
            graph=graph,
            deadline_s=deadline_s,
            soft_time_s=soft_time_s,
            session=session,
            deterministic=deterministic,
            policy=policy,
            emit=emit,
        )
        sink = EventSink()
        return EventStream(self._send(job, sink.write), sink)

    def close(self, *, drain: bool = True, timeout_s: float | None = None) -> None:
        """Ends the runtime and its threads. Calling it again does nothing.

        Args:
            drain: Let the requests that are in finish; otherwise they are cancelled.
            timeout_s: How long to let them, at most; then they are cancelled.
        """
        with self._changed:
            self._closed = True
            if drain:
                self._changed.wait_for(lambda: not self._open, timeout_s)
            left = list(self._open)
        for request in left:
            request.cancel()
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close(drain=kind is None)

    def _job(
        self,
        walk: str,
        values: Mapping[str, Any],
        *,
        graph: str | None,
        deadline_s: float | None,
        soft_time_s: float | None,
        session: str,
        deterministic: bool,
        policy: ComputePolicy | None,
        emit: Sequence[str] = (),
        here: bool = False,
    ) -> Job:
        now = time.monotonic()
        name = self._graph_name(graph)
        found = self.graphs[name].walk(walk)
        check_inputs(found, values)
        _check_emit(found, emit)
        deadline = _time("deadline_s", deadline_s)
        soft = _time("soft_time_s", soft_time_s)
        return Job(
            name,
            walk,
            dict(values),
            submitted=now,
            deadline=math.inf if deadline is None else now + deadline,
            soft_deadline=None if soft is None else now + soft,
            session=session,
            deterministic=deterministic,
            policy=policy,
            emit=frozenset(emit),
            here=here,
        )

    def _send(self, job: Job, on_value: Callable[[str, Any], None] | None) -> Request:
        request = Request()
        session = job.session
        with self._changed:
            if self._closed:
                raise UnavailableError("the runtime is closed; make a new one")
            self._admission.enter(session)
            self._open.add(request)
        request.add_done_callback(lambda ended: self._left(ended, session))
        owned = [value for value in job.values.values() if hasattr(value, "release")]
        if owned:  # a request may end before a worker has seen it
            request.add_done_callback(lambda _: release(owned))
        self._executor.submit(job, request, on_value)
        return request

    def _left(self, request: Any, session: str) -> None:
        with self._changed:
            self._admission.leave(session)
            self._open.discard(request)
            if self._closed and not self._open:
                self._changed.notify_all()

    def _graph_name(self, graph: str | None) -> str:
        if graph is None:
            if len(self.graphs) != 1:
                names = ", ".join(sorted(self.graphs))
                raise InvalidInputError(f"the runtime has the graphs {names}; say which", field="graph")
            return next(iter(self.graphs))
        if graph not in self.graphs:
            raise NotFoundError(f"there is no graph {graph!r}{did_you_mean(graph, self.graphs)}", field="graph")
        return graph


def _time(name: str, seconds: float | None) -> float | None:
    if seconds is not None and not (math.isfinite(seconds) and seconds > 0):
        raise InvalidInputError(f"{name} is {seconds}; it needs a positive number of seconds", field=name)
    return seconds


def _check_emit(walk: Walk, emit: Iterable[str]) -> None:
    written = writes_of(walk.step) if emit else set()
    for wire in emit:
        if wire not in written:
            raise NotFoundError(f"walk {walk.name!r} writes no {wire!r}{did_you_mean(wire, written)}", field="emit")
