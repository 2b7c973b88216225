"""House: what all routes share: models, the runtime that runs their walks, threads for what blocks, counting."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from starlette.types import Scope

from mstar_plan.errors import (
    DeadlineError,
    InvalidInputError,
    LimitExceededError,
    NotFoundError,
    UnavailableError,
    did_you_mean,
)
from mstar_plan.families.abilities import WalkCall
from mstar_plan.families.servable import Servable
from mstar_plan.runtime.event_stream import EventStream
from mstar_plan.runtime.runtime import Runtime
from mstar_plan.serving.http.access import CLIENT
from mstar_plan.serving.http.config import HttpConfig
from mstar_plan.serving.http.events import Events
from mstar_plan.serving.http.metrics import MODEL, Metrics

T = TypeVar("T")
C = TypeVar("C", bound=WalkCall)
DOES = {
    "text": "write text",
    "speech": "speak",
    "transcription": "transcribe",
    "conversation": "converse",
    "embedding": "embed",
    "action": "act",
}


class House:
    """What all routes share.

    Args:
        servables: {name: model}; the runtime has a graph of each name.
        runtime: Runs their walks.
        config: Bounds.
    """

    def __init__(self, servables: Mapping[str, Servable], runtime: Runtime, config: HttpConfig) -> None:
        self.servables, self.runtime, self.config = dict(servables), runtime, config
        self.limits = config.limits
        self.metrics = Metrics()
        self.began_s = int(time.time())
        self.closing = False  # takes no new requests
        self.robots = 0  # open websockets
        self._live: set[Events] = set()
        # More threads than requests: one that waits for room in a pool must not keep another from being prepared.
        self._threads = ThreadPoolExecutor(2 * config.limits.concurrent_requests, thread_name_prefix="http")
        self._robot_threads = ThreadPoolExecutor(min(8, config.limits.robots), thread_name_prefix="robots")

    def find(self, model: str, scope: Scope | None = None) -> Servable:
        """The model of this name, noted in a request's scope for its counting.

        Raises:
            NotFoundError: There is none.
        """
        if model not in self.servables:
            hint = did_you_mean(model[:100], self.servables)
            raise NotFoundError(f"there is no model {model[:100]!r}{hint}", field="model")
        if scope is not None:
            scope[MODEL] = model
        return self.servables[model]

    def able(self, model: str, ability: str, scope: Scope | None = None) -> tuple[Servable, Any]:
        """The model of this name, and its ability.

        Raises:
            NotFoundError: There is no such model.
            InvalidInputError: It does not have the ability; the message names those that have.
        """
        servable = self.find(model, scope)
        found = getattr(servable, ability)
        if found is None:
            others = [name for name, each in self.servables.items() if getattr(each, ability) is not None]
            known = f"; these do: {', '.join(others)}" if others else ", and neither does any other"
            raise InvalidInputError(f"model {model!r} does not {DOES[ability]}{known}", field="model")
        return servable, found

    async def off(self, function: Callable[..., T], *args: Any, robot: bool = False) -> T:
        """Runs what blocks, or takes long, in a thread. If nobody waits for it any more, what it gives is released."""
        pool = self._robot_threads if robot else self._threads
        try:
            future = pool.submit(function, *args)
        except RuntimeError:
            raise UnavailableError("the server is shutting down; ask another one") from None
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if not future.cancel():
                future.add_done_callback(_release)
            raise

    async def start(
        self,
        servable: Servable,
        prepare: Callable[[], C],
        *,
        scope: Scope | None = None,
        deadline_s: float | None = None,
        urgent_s: float | None = None,
        session: str = "",
        robot: bool = False,
    ) -> tuple[C, Events]:
        """Prepares a call in a thread, and runs it.

        Args:
            servable: Whose call it is.
            prepare: Makes the call; it may wait for room.
            scope: Of the request that it is for.
            deadline_s: Seconds from now that it may take; the server's limit if None. The runtime serves
                the earliest deadline first, so it is not told of the limit: old requests would go before all others.
            urgent_s: Seconds from now by which the result is wanted: it goes before what has no such time, and before
                fuller batches. Later it is still worth something; loops that may be cut short (`anytime`) are, then.
            session: Name that fairness is kept by; the client's if empty.
            robot: A robot waits for it, which must not wait behind other preparations.

        Raises:
            MStarError: As `prepare` and `Runtime.stream`.
        """
        most_s = self._time(deadline_s)
        began = time.monotonic()
        call = await self.off(prepare, robot=robot)
        left_s = most_s - (time.monotonic() - began)
        try:
            if self.closing:
                raise UnavailableError("the server is shutting down; ask another one")
            if left_s <= 0:
                raise DeadlineError(f"its {most_s:g} s passed while it waited for room; give it more time")
            stream = self.runtime.stream(
                call.walk,
                call.values,
                emit=call.emit,
                graph=servable.name,
                deadline_s=None if deadline_s is None else left_s,
                soft_time_s=urgent_s,
                session=session or (scope or {}).get(CLIENT, ""),
            )
        except BaseException:
            call.release()
            raise
        late = DeadlineError(f"it took {most_s:g} s, which is the longest that it may take")
        return call, self._watched(stream, servable.name, left_s, late)

    def close_all(self, why: UnavailableError) -> None:
        """Ends all requests that run; their readers get `why`."""
        for events in list(self._live):
            events.close(why)

    @property
    def running(self) -> int:
        """Walks that run for this server."""
        return len(self._live)

    def close(self) -> None:
        """Ends the threads; those that wait in a model's pool are left to their own timeouts."""
        for pool in (self._threads, self._robot_threads):
            pool.shutdown(wait=False, cancel_futures=True)

    def _time(self, deadline_s: float | None) -> float:
        """Seconds that a request may take."""
        most = self.limits.request_s
        if deadline_s is not None and not 0 < deadline_s <= most:  # NaN, too
            kind = LimitExceededError if deadline_s > most else InvalidInputError
            raise kind(f"deadline_s is {deadline_s}; it needs more than 0 and at most {most:g}", field="deadline_s")
        return most if deadline_s is None else deadline_s

    def _watched(self, stream: EventStream, model: str, left_s: float, late: DeadlineError) -> Events:
        """The events of a request, which is among the live ones until it ends, `late` at the latest."""
        loop, events = asyncio.get_running_loop(), Events(stream)
        self._live.add(events)
        timer = loop.call_later(left_s, events.close, late)

        def ended(_: Any) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has been closed
                loop.call_soon_threadsafe(self._ended, events, model, timer)

        stream.request.add_done_callback(ended)
        return events

    def _ended(self, events: Events, model: str, timer: asyncio.TimerHandle) -> None:
        timer.cancel()
        self._live.discard(events)
        batch = events.largest_batch()
        if batch:
            self.metrics.batch.labels(model).observe(batch)


def _release(future: Future[Any]) -> None:
    if not future.cancelled() and future.exception() is None and isinstance(future.result(), WalkCall):
        future.result().release()
