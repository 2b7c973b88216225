"""HttpServer: starts, answers everybody at once, notices who hangs up, and ends gracefully."""

from __future__ import annotations

import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pytest
from http_world import World, doubler, http_world
from openai import OpenAI
from openpi_client import msgpack_numpy
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from mstar_plan.errors import ConfigError, UnavailableError
from mstar_plan.runtime.runtime import Runtime
from mstar_plan.serving.http.config import HttpConfig, HttpLimits
from mstar_plan.serving.http.server import HttpServer


def chat(words: str, **more: Any) -> dict[str, Any]:
    return {"model": "scribe", "messages": [{"role": "user", "content": words}], **more}


def slow(seconds: float, pace_s: float = 0.02) -> str:
    return "word " * int(seconds / pace_s) + f"pace={pace_s}"


def observation() -> dict[str, Any]:
    return {"observation/image": np.zeros((8, 8, 3), np.uint8), "observation/state": np.zeros(3, np.float32)}


def until_running(world: World, count: int = 1) -> None:
    end = time.monotonic() + 5
    while world.server.house.running < count:
        assert time.monotonic() < end, "it did not start"
        time.sleep(0.002)


def test_it_is_ready_inside_and_gone_outside() -> None:
    before = set(threading.enumerate())
    with http_world() as world:
        assert httpx.get(f"{world.url}/readyz").text == "ready\n"
        address = world.server.address
    host, _, port = address.rpartition(":")
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((host, int(port)), timeout=2)
    assert not [thread for thread in set(threading.enumerate()) - before if "http" in thread.name]
    world.server.stop()  # once more: nothing happens


def test_a_port_that_is_taken() -> None:
    with http_world() as world, pytest.raises(UnavailableError, match="taken"):
        HttpServer({}, world.runtime, HttpConfig(port=world.port)).start()


def test_models_have_the_names_of_their_graphs() -> None:
    model = doubler()
    with Runtime({"other": model.graph}) as runtime, pytest.raises(ConfigError, match="doubler"):
        HttpServer({"doubler": model}, runtime)
    with Runtime({"doubler": model.graph}) as runtime, pytest.raises(ConfigError, match="twice"):
        HttpServer({"twice": model}, runtime)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", chat(slow(3))),
        ("/v1/chat/completions", chat(slow(3), stream=True)),
        ("/v1/completions", {"model": "scribe", "prompt": [slow(3), slow(3)]}),
        ("/v1/completions", {"model": "scribe", "prompt": [slow(3), slow(3)], "stream": True}),
        ("/v1/audio/speech", {"model": "speaker", "input": "a " + "pace=0.02 " * 150, "response_format": "wav"}),
        ("/v1/audio/speech", {"model": "speaker", "input": "a " + "pace=0.02 " * 150, "stream_format": "sse"}),
    ],
)
def test_hanging_up_ends_what_is_under_way(world: World, path: str, body: dict[str, Any]) -> None:
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(data)}\r\n\r\n"
    line = socket.create_connection(("127.0.0.1", world.port))
    line.sendall(head.encode() + data)
    until_running(world)
    time.sleep(0.05)
    line.close()
    world.settle(0.5)  # of three seconds that it would have run
    calls = world.log.calls
    time.sleep(0.06)
    assert world.log.calls == calls


def test_hanging_up_while_waiting_for_room_gives_the_room_back(world: World) -> None:
    taken, released = world.log.taken, world.log.released
    world.log.gate.clear()
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{world.url}/v1/chat/completions", json=chat("wait"), timeout=0.2)
    time.sleep(0.05)
    assert world.log.taken == taken  # it still waits in its thread
    world.log.gate.set()
    end = time.monotonic() + 5
    while world.log.released == released and time.monotonic() < end:
        time.sleep(0.01)
    assert (world.log.taken, world.log.released) == (taken + 1, released + 1)


def test_a_call_that_cannot_be_submitted_is_released(world: World) -> None:
    with http_world() as other:
        other.runtime.close()
        got = httpx.post(f"{other.url}/v1/chat/completions", json=chat("hi"))
        assert (got.status_code, got.headers["retry-after"]) == (503, "1")
        assert other.log.released == other.log.taken == 1


def test_more_requests_than_are_taken() -> None:
    with http_world(HttpLimits(concurrent_requests=2)) as world, ThreadPoolExecutor(2) as pool:
        url = f"{world.url}/v1/chat/completions"
        running = [pool.submit(httpx.post, url, json=chat(slow(0.6)), timeout=10) for _ in range(2)]
        until_running(world, 2)
        got = httpx.post(url, json=chat("hi"))
        assert (got.status_code, got.json()["error"]["code"]) == (429, "overloaded")
        assert httpx.get(f"{world.url}/healthz").text == "OK\n"  # watchers are always answered
        assert httpx.get(f"{world.url}/metrics").status_code == 200
        assert [each.result().status_code for each in running] == [200, 200]
        assert httpx.post(url, json=chat("hi")).status_code == 200


def test_requests_in_flight_end_when_it_stops() -> None:
    with http_world(grace_s=5.0) as world, ThreadPoolExecutor(3) as pool:
        url = f"{world.url}/v1/chat/completions"
        whole = pool.submit(httpx.post, url, json=chat(slow(0.5)), timeout=10)
        streamed = pool.submit(httpx.post, url, json=chat(slow(0.5), stream=True), timeout=10)
        until_running(world, 2)
        with connect(f"ws://{world.server.address}/") as robot:
            robot.recv()
            stopping = pool.submit(world.server.stop)
            time.sleep(0.1)
            got = httpx.get(f"{world.url}/readyz")
            assert (got.status_code, got.text) == (503, "shutting down\n")
            assert httpx.post(url, json=chat("hi")).status_code == 503
            robot.send(msgpack_numpy.packb(observation()))
            assert "shutting down" in str(robot.recv(timeout=2))
            assert whole.result().json()["choices"][0]["finish_reason"] == "stop"
            assert streamed.result().text.endswith("data: [DONE]\n\n")
            stopping.result(5)
            with pytest.raises(ConnectionClosed):
                robot.recv(timeout=2)


def test_after_the_grace_requests_are_taken_back_in_words() -> None:
    with http_world(grace_s=0.2) as world, ThreadPoolExecutor(3) as pool:
        url = f"{world.url}/v1/chat/completions"
        whole = pool.submit(httpx.post, url, json=chat(slow(20)), timeout=10)
        streamed = pool.submit(httpx.post, url, json=chat(slow(20), stream=True), timeout=10)
        until_running(world, 2)
        began = time.monotonic()
        world.server.stop()
        assert time.monotonic() - began < 2.0
        assert whole.result().status_code == 503
        *_, last, nothing = streamed.result().text.split("\n\n")
        assert (nothing, json.loads(last[6:])["error"]["code"]) == ("", "unavailable")
        assert not world.server.house.running


def test_many_clients_at_once(world: World) -> None:
    def ask(number: int) -> None:
        with OpenAI(base_url=f"{world.url}/v1", api_key="none", max_retries=0) as client:
            for turn in range(5):
                words = f"client {number} turn {turn}"
                messages: Any = [{"role": "user", "content": words}]
                if turn % 2:
                    got = client.chat.completions.create(model="scribe", messages=messages)
                    assert got.choices[0].message.content == words
                else:
                    chunks = client.chat.completions.create(model="scribe", messages=messages, stream=True)
                    assert "".join(c.choices[0].delta.content or "" for c in chunks) == words

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, range(8)))


def test_retries_of_openais_client_heed_the_server() -> None:
    with http_world(HttpLimits(concurrent_requests=1)) as world, ThreadPoolExecutor(1) as pool:
        running = pool.submit(httpx.post, f"{world.url}/v1/chat/completions", json=chat(slow(0.4)), timeout=10)
        until_running(world)
        with OpenAI(base_url=f"{world.url}/v1", api_key="none", max_retries=3) as client:
            messages: Any = [{"role": "user", "content": "hi"}]
            assert client.chat.completions.create(model="scribe", messages=messages).choices
        assert running.result().status_code == 200


def test_a_robot_does_not_wait_behind_longer_talks(world: World) -> None:
    with ThreadPoolExecutor(4) as pool, connect(f"ws://{world.server.address}/") as robot:
        url = f"{world.url}/v1/chat/completions"
        talks = [pool.submit(httpx.post, url, json=chat(slow(0.2)), timeout=20) for _ in range(4)]
        until_running(world, 4)
        robot.recv()
        world.log.order.clear()
        robot.send(msgpack_numpy.packb(observation()))
        assert isinstance(robot.recv(timeout=5), bytes)
        steps = [at for at, who in enumerate(world.log.order) if who == "drive"]
        assert steps[-1] - steps[0] < len(steps) + 1  # at most one step of a talk came between (the oldest's turn)
        assert [talk.result().status_code for talk in talks] == [200] * 4


def test_the_longest_that_a_request_may_take() -> None:
    with http_world(HttpLimits(request_s=0.3)) as world:
        got = httpx.post(f"{world.url}/v1/chat/completions", json=chat(slow(5)), timeout=10)
        assert (got.status_code, got.json()["error"]["code"]) == (504, "deadline")
        world.settle(0.5)


def test_small_answers_are_not_held_back(world: World) -> None:
    with httpx.Client(base_url=world.url) as client:
        times = []
        for _ in range(20):
            began = time.perf_counter()
            client.post("/v1/embeddings", json={"model": "mapper", "input": "a"})
            times.append(time.perf_counter() - began)
    assert min(times[1:]) < 0.03  # Nagle's algorithm with delayed acknowledgements makes it 0.04
