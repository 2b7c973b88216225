"""Answers of middleware: an error before any route is asked, over HTTP or on a websocket."""

from __future__ import annotations

import asyncio

from starlette.types import Receive, Scope, Send

from mstar_plan.errors import MStarError
from mstar_plan.serving.http.errors import code_of, encoded, headers_of

PATIENCE_S, PATIENCE_BYTES = 2.0, 64 * 2**20


async def refuse(error: MStarError, scope: Scope, receive: Receive, send: Send) -> None:
    """Sends an error as the answer to a request that nothing has answered yet."""
    body = encoded(error)
    headers = {"content-type": "application/json", "content-length": str(len(body)), **headers_of(error)}
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    kind = "websocket.http" if scope["type"] == "websocket" else "http"
    if kind == "http":
        await let_it_finish(receive)
    await send({"type": f"{kind}.response.start", "status": code_of(error), "headers": raw})
    await send({"type": f"{kind}.response.body", "body": body})


async def let_it_finish(receive: Receive) -> None:
    """Reads and drops what a client is sending: many look for an answer only when they have sent everything."""
    read = 0
    try:
        async with asyncio.timeout(PATIENCE_S):
            while read < PATIENCE_BYTES:
                message = await receive()
                read += len(message.get("body", b""))
                if message["type"] != "http.request" or not message.get("more_body", False):
                    return
    except TimeoutError:
        return
