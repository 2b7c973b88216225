"""Streams: an answer that nobody takes is given up, and its request with it."""

from __future__ import annotations

import json
import socket
import time

from http_world import http_world

from mstar_plan.serving.http.config import HttpLimits


def test_a_client_that_takes_nothing_is_given_up() -> None:
    words = "w" * 60_000 + " "
    content = words * 40 + "pace=0.01"
    body = {"model": "scribe", "messages": [{"role": "user", "content": content}], "stream": True, "n": 16}
    data = json.dumps(body).encode()
    head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with http_world(HttpLimits(stall_s=0.3)) as world:
        line = socket.socket()
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.connect(("127.0.0.1", world.port))
        line.sendall(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        end = time.monotonic() + 5
        while not world.log.calls and time.monotonic() < end:
            time.sleep(0.01)
        time.sleep(0.2)
        assert world.server._bounded.under_way == 1  # more was written than the buffers between them hold
        world.settle(5.0)  # though the client is still there, and has read nothing
        line.close()
