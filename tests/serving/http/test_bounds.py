"""Bounds: bodies that are too large, or never come."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import httpx
from http_world import http_world

from mstar_plan.serving.http.config import HttpLimits

HEAD = "POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def test_a_body_that_says_it_is_too_large() -> None:
    with http_world(HttpLimits(body_bytes=10_000)) as world:
        got = httpx.post(f"{world.url}/v1/embeddings", content=b"x" * 5_000_000)
        assert (got.status_code, got.json()["error"]["code"]) == (413, "body_too_large")
        assert "10000" in got.json()["error"]["message"]
        ok = httpx.post(f"{world.url}/v1/embeddings", json={"model": "mapper", "input": "x" * 9000})
        assert ok.status_code == 200


def test_a_body_that_does_not_say_how_large_it_is() -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(100):
            yield b"x" * 1000

    with http_world(HttpLimits(body_bytes=10_000)) as world:
        got = httpx.post(f"{world.url}/v1/embeddings", content=pieces(), headers={"content-type": "application/json"})
        assert (got.status_code, got.json()["error"]["code"]) == (413, "body_too_large")
        form = httpx.post(
            f"{world.url}/v1/audio/transcriptions", data={"model": "listener"}, files={"file": b"x" * 20_000}
        )
        assert form.status_code == 413


def test_a_length_that_is_none() -> None:
    with http_world(HttpLimits(body_bytes=10_000)) as world:
        for length in ("-5", "9" * 30, "abc", "1e3"):
            with socket.create_connection(("127.0.0.1", world.port)) as line:
                line.sendall(f"{HEAD}Content-Length: {length}\r\n\r\n{{}}".encode())
                line.settimeout(5)
                assert line.recv(20).split()[1][:1] == b"4", length


def test_a_body_that_stops_coming() -> None:
    with http_world(HttpLimits(read_s=0.2)) as world:
        with socket.create_connection(("127.0.0.1", world.port)) as line:
            began = time.monotonic()
            line.sendall(f"{HEAD}Content-Length: 100\r\n\r\n{{".encode())
            line.settimeout(5)
            assert line.recv(20).split()[1] == b"504"
            assert 0.15 < time.monotonic() - began < 2
        world.settle()


def test_hanging_up_in_the_middle_of_a_body() -> None:
    with http_world() as world:
        with socket.create_connection(("127.0.0.1", world.port)) as line:
            line.sendall(f"{HEAD}Content-Length: 100\r\n\r\n{{".encode())
            time.sleep(0.05)
        world.settle(1.0)
        assert httpx.get(f"{world.url}/healthz").status_code == 200
