"""Middleware that bounds bodies and requests under way, and ends the answer to a client that has hung up."""

from __future__ import annotations

import asyncio
import logging

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mstar_plan.errors import DeadlineError, MStarError, OverloadedError, UnavailableError
from mstar_plan.serving.http.access import FREE
from mstar_plan.serving.http.config import HttpLimits
from mstar_plan.serving.http.errors import BodyTooLargeError
from mstar_plan.serving.http.metrics import Metrics
from mstar_plan.serving.http.refusal import let_it_finish, refuse

_log = logging.getLogger(__name__)

UNBOUNDED = (*FREE, "/metrics")
HUNG_UP = "mstar_hung_up"  # key of a request's scope


class Bounded:
    """Runs each request as a task of its own, which is cancelled when its client hangs up.

    So no route needs to look whether anybody still listens: where it waits, it is cancelled, and its `finally` gives
    back what it holds.

    Args:
        app: What answers.
        limits: Bounds.
        metrics: Where refusals are counted.
    """

    def __init__(self, app: ASGIApp, limits: HttpLimits, metrics: Metrics) -> None:
        self._app, self._limits, self._metrics = app, limits, metrics
        self.under_way = 0
        self.closing = False  # takes no new requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http" or scope["path"] in UNBOUNDED:
            await self._app(scope, receive, send)
            return
        try:
            self._check(Headers(scope=scope))
        except MStarError as error:
            self._metrics.failed(error)
            await refuse(error, scope, receive, send)
            return
        self.under_way += 1
        try:
            await self._answer(scope, receive, send)
        finally:
            self.under_way -= 1

    def _check(self, headers: Headers) -> None:
        if self.closing:
            raise UnavailableError("the server is shutting down; ask another one")
        most = self._limits.concurrent_requests
        if self.under_way >= most:
            raise OverloadedError(f"{most} requests are under way, which is all that is taken", retry_after_s=0.5)
        length = headers.get("content-length", "0")
        if not length.isascii() or not length.isdigit() or int(length[:20]) > self._limits.body_bytes:
            raise self._too_large(length[:20])

    def _too_large(self, size: str) -> BodyTooLargeError:
        return BodyTooLargeError(
            f"the body has {size} bytes; at most {self._limits.body_bytes} are taken", field="body"
        )

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        line = _Line(receive, send, self)
        answering = asyncio.create_task(self._run(scope, line))
        watching = asyncio.create_task(line.watch())
        try:
            await asyncio.wait((answering, watching), return_when=asyncio.FIRST_COMPLETED)
            if not answering.done() and not line.answered:
                scope[HUNG_UP] = True
                _log.debug("%s: the client has hung up", scope["path"])
                return
            await answering
        finally:
            for task in (watching, answering):
                task.cancel()
            await asyncio.gather(watching, answering, return_exceptions=True)

    async def _run(self, scope: Scope, line: _Line) -> None:
        await self._app(scope, line.receive, line.send)

    async def bounded(self, receive: Receive, read: int) -> Message:
        """The next part of a body of which `read` bytes have come.

        Raises:
            DeadlineError: It does not come.
            BodyTooLargeError: With it, the body is too large.
        """
        try:
            async with asyncio.timeout(self._limits.read_s):
                message = await receive()
        except TimeoutError:
            what = f"the body stopped coming after {read} bytes"
            raise DeadlineError(f"{what}; {self._limits.read_s:g} s is the longest pause", field="body") from None
        if read + len(message.get("body", b"")) > self._limits.body_bytes:
            if message.get("more_body", False):
                await let_it_finish(receive)
            raise self._too_large(f"more than {self._limits.body_bytes}")
        return message


class _Line:
    """The line to one client: bounds what comes, and hears when it goes dead."""

    def __init__(self, receive: Receive, send: Send, bounds: Bounded) -> None:
        self._receive, self._send, self._bounds = receive, send, bounds
        self._whole = asyncio.Event()  # all of the body has come
        self._dead = asyncio.Event()
        self._read = 0
        self.answered = False

    async def receive(self) -> Message:
        if self._whole.is_set():
            await self._dead.wait()
            return {"type": "http.disconnect"}
        message = await self._bounds.bounded(self._receive, self._read)
        self._read += len(message.get("body", b""))
        if message["type"] == "http.disconnect":
            self._dead.set()
        if not message.get("more_body", False):
            self._whole.set()
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self.answered = True
        await self._send(message)

    async def watch(self) -> None:
        """Returns when the client has hung up."""
        await self._whole.wait()
        while not self._dead.is_set():
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self._dead.set()
