"""Streamed answers: bytes as they are made, and server-sent events; their requests end with them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from mstar_plan.errors import MStarError
from mstar_plan.serving.http.errors import as_ours, encoded
from mstar_plan.serving.http.events import Events
from mstar_plan.serving.http.house import House

_log = logging.getLogger(__name__)

SSE = "text/event-stream; charset=utf-8"
DONE = b"data: [DONE]\n\n"


class StreamedResponse(Response):
    """Sends what a generator gives, piece by piece; ends its requests when it ends, or when nobody reads on.

    Args:
        house: Where failures are counted, and how long a piece may wait for the client.
        pieces: What to send.
        events: Requests that it lives on; taken back if they still run at its end.
        media_type: Content type.
    """

    def __init__(
        self, house: House, pieces: AsyncGenerator[bytes, None], events: Iterable[Events], media_type: str = SSE
    ) -> None:
        self.status_code, self.media_type, self.background = 200, media_type, None
        self._house, self._pieces, self._events = house, pieces, tuple(events)
        self.init_headers({"cache-control": "no-cache", "x-accel-buffering": "no"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        stall_s = self._house.limits.stall_s
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            async with aclosing(self._pieces) as pieces:
                async for piece in pieces:
                    async with asyncio.timeout(stall_s):
                        await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            _log.warning("%s: the client took nothing for %g s and was given up", scope["path"], stall_s)
        except MStarError as error:  # the status has been sent; all that is left is to cut the answer off
            self._house.metrics.failed(error)
            _log.warning("%s: cut off: %s", scope["path"], error)
        finally:
            for events in self._events:
                events.close()


async def server_sent(
    house: House, messages: AsyncGenerator[bytes, None], *, done: bool = True
) -> AsyncGenerator[bytes, None]:
    """Each message as a server-sent event; an error as the last one, in the place of [DONE].

    Args:
        house: Where errors are counted.
        messages: JSON of each event, in one line.
        done: End with [DONE], as OpenAI's text routes do.
    """
    try:
        async with aclosing(messages):
            async for message in messages:
                yield b"data: %b\n\n" % message
    except Exception as raised:  # the status has been sent: this is the one place left to say it
        error = as_ours(raised)
        house.metrics.failed(error)
        yield b"data: %b\n\n" % encoded(error)
    else:
        if done:
            yield DONE
