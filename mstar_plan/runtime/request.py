"""What goes into the runtime and what comes out: Job, Request (a Future), WalkResult and the events of a stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from typing import Any

from mstar_plan.errors import CancelledError, MStarError
from mstar_plan.walks.component import ComputePolicy
from mstar_plan.walks.loop_run import LoopEnd


@dataclass(frozen=True, eq=False)
class Job:
    """One request on its way to an executor. Times are of `time.monotonic`, in seconds.

    Attributes:
        graph: Name that the runtime knows the graph by.
        walk: Name of the walk.
        values: A value for every input of the walk.
        submitted: When it came.
        deadline: When it is worth nothing any more; infinity for never.
        soft_deadline: When its anytime loops end with what they have, or None.
        session: Name that fairness is kept by.
        deterministic: Its calls are never joined with others.
        policy: Compute policy of its loops; None is off.
        emit: Wires whose values are events of a stream.
        here: Its caller waits for it, and lends his thread if that helps.
    """

    graph: str
    walk: str
    values: Mapping[str, Any]
    submitted: float
    deadline: float = float("inf")
    soft_deadline: float | None = None
    session: str = ""
    deterministic: bool = False
    policy: ComputePolicy | None = None
    emit: frozenset[str] = frozenset()
    here: bool = False


@dataclass(frozen=True)
class RequestTiming:
    """Where the time of a request went.

    Attributes:
        queue_s: Seconds from submission to its first call.
        run_s: Seconds from there to its end, waits between its calls included.
        component_s: Seconds of the calls that it took part in, by component; a joined call counts in full.
        largest_batch: Most requests that shared one call with it, itself included.
    """

    queue_s: float = 0.0
    run_s: float = 0.0
    component_s: Mapping[str, float] = field(default_factory=dict)
    largest_batch: int = 1


@dataclass(frozen=True, eq=False)
class WalkResult:
    """What a finished walk gives.

    Attributes:
        outputs: {output of the walk: value}. Tensors are inference tensors: clone one to change it in place.
        loop_ends: {loop name: why it ended, after how many iterations}; of a nested loop, its last run.
        timing: Where the time went.
    """

    outputs: Mapping[str, Any]
    loop_ends: Mapping[str, LoopEnd]
    timing: RequestTiming


@dataclass(frozen=True, eq=False)
class Value:
    """Event of a stream: a wire got its `index`-th value (from 0)."""

    name: str
    value: Any
    index: int


@dataclass(frozen=True, eq=False)
class Done:
    """Last event of a stream."""

    result: WalkResult


Event = Value | Done


class Request(Future[WalkResult]):
    """A submitted request: a Future of its result that can be taken back at any time.

    Callbacks run in the worker's thread: keep them short.

    Attributes:
        ended: What `done` says, without its lock.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ended = False
        self._on_cancel: Callable[[], None] | None = None

    def cancel(self) -> bool:
        """Takes the request back, even while it runs: `result` raises CancelledError, and the worker forgets it at the
        next boundary between two calls. False if it had ended before."""
        hook = self._on_cancel
        if not self.fail(CancelledError("the caller took the request back")):
            return False
        if hook is not None:
            hook()
        return True

    def cancelled(self) -> bool:
        """True if it was taken back before it ended."""
        return self.done() and isinstance(self.exception(0), CancelledError)

    def resolve(self, result: WalkResult) -> bool:
        """For executors: ends it with a result; False if it had ended before."""
        try:
            self.ended = True
            self.set_result(result)
        except InvalidStateError:
            return False
        self._on_cancel = None
        return True

    def fail(self, error: MStarError) -> bool:
        """For executors: ends it with an error; False if it had ended before."""
        try:
            self.ended = True
            self.set_exception(error)
        except InvalidStateError:
            return False
        self._on_cancel = None
        return True

    def on_cancel(self, hook: Callable[[], None]) -> None:
        """For executors: what to call when the caller takes the request back."""
        self._on_cancel = hook
        if self.done():
            self._on_cancel = None
