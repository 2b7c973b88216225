"""Worker: the thread that runs the nodes of one placement group; a request alone pays nearly nothing for the rest.

Waking a thread and being woken by it costs a fifth of a millisecond on an idle machine. So whoever waits for a result
anyway may lend the worker his own thread, if it has nothing to do.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from mstar_plan.errors import MStarError, UnavailableError
from mstar_plan.runtime.engine import Answer, Engine
from mstar_plan.runtime.failure import as_error
from mstar_plan.runtime.flight import Arrival, Call, Flight
from mstar_plan.runtime.request import Request
from mstar_plan.runtime.scheduler import Scheduler, SchedulerConfig
from mstar_plan.walks.component import release

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class _Drop:
    """A request has ended early: forget its calls."""

    request: Request


class _Stop:
    """No message comes after this one."""


Message = Arrival | Call | _Drop | _Stop


class Worker:
    """One thread with its inbox, its waiting calls and its engine.

    Args:
        group: Name of its placement group.
        config: How waiting calls are chosen.
        device: Where it wants tensors; None leaves them where they are.
        threads: Torch threads of one operator; None leaves them.
    """

    def __init__(
        self,
        group: str,
        config: SchedulerConfig | None = None,
        *,
        device: torch.device | None = None,
        threads: int | None = None,
    ) -> None:
        config = config or SchedulerConfig()
        self.group, self.device, self._threads = group, device, threads
        self._scheduler = Scheduler(config)
        self._engine = Engine()
        self._inbox: deque[Message] = deque()
        self._bell = threading.Event()  # somebody is to look into the inbox
        self._at_work = threading.Lock()  # whoever holds it is the worker
        self._lent = False  # a caller's thread holds it, and will look into the inbox
        self._in_hand: list[Call] = []
        self._ended = False
        # A daemon, so that a forgotten runtime cannot keep the interpreter from ending.
        self._thread = threading.Thread(target=self._main, name=f"mstar-worker-{group}", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def send(self, message: Message) -> None:
        """Hands over a new request, or a call of one that began elsewhere."""
        self._inbox.append(message)
        if not self._lent:
            self._bell.set()
        if self._ended:
            self._abandon()

    def lend(self, arrival: Arrival) -> bool:
        """Runs a new request in the calling thread, and what comes meanwhile with it, until that request has ended.

        Returns:
            False, with nothing done, if the worker has work already.

        Raises:
            KeyboardInterrupt: The caller was interrupted; the request has ended with an error.
        """
        if not self._at_work.acquire(blocking=False):
            return False
        try:
            if self._ended or self._inbox:
                return False
            self._lent = True
            with _torch_threads(self._threads), torch.inference_mode():
                self._work_for(arrival)
        finally:
            self._lent = False
            self._at_work.release()
            if self._inbox or self._scheduler:
                self._bell.set()
        return True

    def drop(self, request: Request) -> None:
        """Asks to forget a request that has ended early."""
        self.send(_Drop(request))

    def stop(self) -> None:
        """Ends the thread, and waits for it unless called from it. What still waits ends with UnavailableError."""
        self.send(_Stop())
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def _main(self) -> None:
        if self._threads is not None:
            torch.get_num_threads()  # a thread's first use takes over the number set last anywhere: have it behind us
            torch.set_num_threads(self._threads)
        with torch.inference_mode():
            try:
                self._serve()
            except BaseException:
                _log.critical("worker %r broke", self.group, exc_info=True)
                raise
            finally:
                self._ended = True
                self._abandon()

    def _serve(self) -> None:
        while True:
            self._bell.wait()
            self._bell.clear()
            with self._at_work:
                if not self._work():
                    return

    def _work(self, until: Request | None = None) -> bool:
        """Works until nothing is left to do, or a request has ended; False when told to stop."""
        inbox, scheduler = self._inbox, self._scheduler
        while True:
            while inbox:
                if not self._receive(inbox.popleft()):
                    return False
            if not scheduler or (until is not None and until.ended):
                return True
            self._turn()

    def _work_for(self, arrival: Arrival) -> None:
        request = arrival.request
        try:
            self._receive(arrival)
            if not self._work(request):
                self._inbox.appendleft(_Stop())  # for the worker's own thread
        except BaseException as raised:  # an interrupt, most likely: what is in hand is lost
            for call in self._in_hand:
                call.flight.request.fail(as_error(f"the worker of group {self.group!r}", raised))
            self._in_hand = []
            request.fail(as_error(f"walk {arrival.job.walk!r}", raised))
            self._forget(request)
            raise
        error = request.exception(0) if request.done() else None
        if error is not None and isinstance(error.__cause__, KeyboardInterrupt):
            raise error.__cause__  # a component was interrupted in the caller's own thread

    def _receive(self, message: Message) -> bool:
        match message:
            case Call():
                self._scheduler.add(message)
            case Arrival():
                flight = Flight.begin(message)
                if flight is not None:
                    self._advance(flight)
            case _Drop(request):
                self._forget(request)
            case _Stop():
                return False
        return True

    def _turn(self) -> None:
        now = time.monotonic()
        calls = [call for call in self._scheduler.next() if self._still_wanted(call, now)]
        if not calls:
            return
        self._in_hand = calls
        first = calls[0]
        alone = len(calls) == 1 and not self._scheduler
        if not (alone and self._run_alone(first)):
            self._run_joined(calls, now)
        self._in_hand = []

    def _still_wanted(self, call: Call, now: float) -> bool:
        flight = call.flight
        if flight.alive(now):
            if flight.began is None:
                flight.began = now
            return True
        self._forget(flight.request)
        flight.forget()
        return False

    def _forget(self, request: Request) -> None:
        for call in self._scheduler.remove(request):
            call.flight.forget()

    def _run_alone(self, call: Call) -> bool:
        """Runs a flight on and on while nobody else wants anything: one lock for all its nodes, no keys, no choice.

        Returns:
            False, with nothing done, if the flight has other calls under way elsewhere.
        """
        flight = call.flight
        began = time.monotonic()
        with flight.lock:
            if flight.state.sole() is not call.node:
                return False
            flight.run_alone(self, self._inbox.__len__)
        self._scheduler.served(flight.job.session, time.monotonic() - began)
        self._advance(flight)
        return True

    def _run_joined(self, calls: list[Call], now: float) -> None:
        name, component = calls[0].node.component, calls[0].component
        answers = self._engine.run(name, component, [call.batch for call in calls])
        seconds = time.monotonic() - now
        flights = {id(call.flight): call.flight for call in calls}
        for flight in flights.values():
            with flight.lock:
                flight.spend(name, seconds, len(flights))
        rows = sum(call.batch.size for call in calls)
        for call, answer in zip(calls, answers, strict=True):
            self._scheduler.served(call.flight.job.session, seconds * call.batch.size / rows)
            self._settle(call, answer)
        for flight in flights.values():
            self._advance(flight)

    def _settle(self, call: Call, answer: Answer) -> None:
        """Gives a call's answer to its flight, unless that has ended."""
        flight = call.flight
        with flight.lock:
            flight.dispatched.discard(call.node.name)
            if flight.request.ended:
                if not isinstance(answer, MStarError):
                    release(answer.values())  # nobody else will have seen what it took
                return
            if isinstance(answer, MStarError):
                flight.fail(answer)
            else:
                flight.take(call.node, answer)

    def _advance(self, flight: Flight) -> None:
        """Ends a flight that has finished, frees one that has ended, or hands its new calls to whoever runs them."""
        with flight.lock:
            if flight.request.ended:
                flight.state.release()
                return
            result = flight.result() if flight.state.finished else None
            calls = flight.new_calls() if result is None else ()
            if result is not None:
                flight.state.release()
        if result is not None:
            flight.request.resolve(result)
        for call in calls:
            owner = flight.route.owners[call.node.name]
            if owner is self:
                self._scheduler.add(call)
            else:
                owner.send(call)

    def _abandon(self) -> None:
        """Ends everything that is left with an error, so that nobody waits for ever."""
        left: list[Message] = [*self._in_hand, *self._scheduler.take_all()]
        with contextlib.suppress(IndexError):
            while True:
                left.append(self._inbox.popleft())
        error = UnavailableError(f"the worker of group {self.group!r} has stopped; make a new runtime")
        for message in left:
            if isinstance(message, Arrival):
                message.request.fail(error)
            elif isinstance(message, Call):
                message.flight.request.fail(error)


@contextlib.contextmanager
def _torch_threads(number: int | None) -> Iterator[None]:
    """Torch's number of threads in this thread, for a while; None leaves it."""
    before = torch.get_num_threads()
    if number is None or number == before:
        yield
        return
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
