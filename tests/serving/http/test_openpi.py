"""Robots: openpi's own client, unmodified, and bare websockets for what it would never send."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgpack
import numpy as np
import pytest
from http_world import World, http_world
from openpi_client import msgpack_numpy
from openpi_client.action_chunk_broker import ActionChunkBroker
from openpi_client.websocket_client_policy import WebsocketClientPolicy
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from mstar_plan.serving.http.config import HttpLimits

# openpi's client connects in a way that newer releases of its websocket library warn of.
pytestmark = pytest.mark.filterwarnings("ignore:connect.. must be used as a context manager:DeprecationWarning")


def observation(state: float = 0.0, grey: int = 3, **more: Any) -> dict[str, Any]:
    return {
        "observation/image": np.full((8, 8, 3), grey, np.uint8),
        "observation/state": np.full(3, state),  # float64, as robots' programs have it
        **more,
    }


def want(state: float = 0.0, grey: int = 3) -> np.ndarray:
    return np.full((4, 3), state + grey) + np.arange(4.0)[:, None]


@pytest.fixture
def policy(world: World) -> Iterator[WebsocketClientPolicy]:
    made = WebsocketClientPolicy("127.0.0.1", world.port)
    yield made
    made._ws.close()


@pytest.fixture
def bare(world: World) -> Iterator[ClientConnection]:
    with connect(f"ws://{world.server.address}/v1/realtime/robot/openpi", max_size=None) as made:
        made.recv()
        yield made


def test_the_robot_is_told_what_it_talks_to(policy: WebsocketClientPolicy) -> None:
    told = policy.get_server_metadata()
    assert (told["model"], told["chunk"], told["dt_s"]) == ("driver", 4, 0.05)
    assert told["action_names"] == ["x", "y", "grip"]
    assert told["action_units"] == ["m", "m", "1"]
    np.testing.assert_array_equal(told["action_low"], np.full(3, -500, np.float32))
    np.testing.assert_array_equal(told["action_high"], np.full(3, 500, np.float32))
    assert [field["key"] for field in told["fields"]] == ["observation/image", "observation/state", "prompt"]
    assert told["fields"][1]["names"] == ["x", "y", "grip"]
    assert told["server_version"]


def test_actions_and_where_the_time_went(policy: WebsocketClientPolicy) -> None:
    got = policy.infer(observation(2.0))
    assert got["actions"].dtype == np.float32
    np.testing.assert_allclose(got["actions"], want(2.0))
    assert 0 <= got["server_timing"]["queue_ms"] < 1000
    assert 25 < got["server_timing"]["infer_ms"] < 2000
    assert "prev_total_ms" not in got["server_timing"]
    assert policy.infer(observation())["server_timing"]["prev_total_ms"] > 25


def test_a_chunk_broker_runs_on_it(policy: WebsocketClientPolicy) -> None:
    broker = ActionChunkBroker(policy, action_horizon=4)
    steps = [broker.infer(observation(1.0))["actions"] for _ in range(4)]
    np.testing.assert_allclose(np.stack(steps), want(1.0))


def test_keys_may_be_nested_and_channels_first(policy: WebsocketClientPolicy, world: World) -> None:
    image = np.zeros((3, 8, 8), np.uint8)
    image[1] = 9
    got = policy.infer({"observation": {"image": image, "state": [1.0, 1.0, 1.0]}, "prompt": "go"})
    np.testing.assert_allclose(got["actions"], want(1.0, 3))
    seen, seed, previous, delay = world.log.asked[-1]
    assert (seen["prompt"], seed, previous, delay) == ("go", None, None, 0)
    assert seen["observation/state"].dtype == np.float32
    assert (seen["observation/image"][..., 1] == 9).all()


def test_options_reach_the_policy(policy: WebsocketClientPolicy, world: World) -> None:
    previous = np.ones((2, 3))
    policy.infer(observation(options={"seed": np.int64(5), "previous": previous, "delay": 2, "deadline_s": 5.0}))
    _, seed, got, delay = world.log.asked[-1]
    assert (seed, delay) == (5, 2)
    np.testing.assert_array_equal(got, previous)


def test_an_error_is_text_and_the_connection_goes_on(policy: WebsocketClientPolicy) -> None:
    for bad, said in (
        ({"observation/image": np.zeros((8, 8, 3), np.uint8)}, "observation/state"),
        (observation(joint=1), "joint"),
        ({**observation(), "observation/image": np.zeros((8, 8, 3), np.float32)}, "float32"),
        ({**observation(), "observation/state": np.full(3, np.nan)}, "NaN"),
        (observation(options={"sed": 1}), "did you mean 'seed'"),
        (observation(options={"delay": -1}), "options.delay"),
        (observation(options={"seed": "x"}), "options.seed"),
        (observation(options={"deadline_s": 1e9}), "deadline_s"),
        (observation(options=3), "options"),
        ({"endpoint": "self-destruct"}, "endpoint"),
        (observation(prompt=None), "NoneType"),
    ):
        with pytest.raises(RuntimeError) as found:
            policy.infer(bad)
        assert said in str(found.value)
        assert "Traceback" not in str(found.value)
    np.testing.assert_allclose(policy.infer(observation())["actions"], want())


def test_reset(policy: WebsocketClientPolicy) -> None:
    assert policy.infer({"endpoint": "reset"}) == {"reset": True}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"\x81" * 3000,
        msgpack.packb([1, 2]),
        msgpack.packb(
            {"observation/state": {b"__ndarray__": True, b"dtype": "|O", b"shape": [1], b"data": b"12345678"}}
        ),
        msgpack.packb(
            {"observation/state": {b"__ndarray__": True, b"dtype": "|V8", b"shape": [1], b"data": b"1234567"}}
        ),
        msgpack.packb({"observation/state": {b"__ndarray__": True, b"dtype": "<f8", b"shape": [2**60], b"data": b""}}),
        msgpack.packb(
            {"observation/state": {b"__ndarray__": True, b"dtype": "<f8", b"shape": [-1], b"data": b"x" * 8}}
        ),
        msgpack.packb({"observation/state": {b"__ndarray__": True}}),
        msgpack.packb({"observation/state": {b"__npgeneric__": True, b"dtype": "<i4", b"data": 2**40}}),
        msgpack.packb({1: 2}),
        msgpack.packb({b"bytes": b"raw"}),
        msgpack.packb({"a": b"raw"}),
        msgpack.packb({"a": [[]] * 4000 + [[0] * 200]}),
        msgpack.packb({"when": msgpack.Timestamp(1)}),
        msgpack.packb({"ext": msgpack.ExtType(5, b"x")}),
    ],
)
def test_messages_that_are_none_are_refused_in_words(bare: ClientConnection, data: bytes) -> None:
    bare.send(data)
    reply = bare.recv(timeout=5)
    assert isinstance(reply, str)
    assert "the server failed" not in reply
    bare.send(msgpack_numpy.packb(observation()))
    assert isinstance(bare.recv(timeout=5), bytes)


def test_a_text_frame_is_refused_in_words(bare: ClientConnection) -> None:
    bare.send("hello")
    assert "binary" in str(bare.recv(timeout=5))


def test_a_message_that_is_too_large_ends_the_connection() -> None:
    with http_world(HttpLimits(body_bytes=100_000)) as world:
        with connect(f"ws://{world.server.address}/", max_size=None) as robot:
            robot.recv()
            robot.send(b"x" * 200_000)
            with pytest.raises(ConnectionClosed):
                robot.recv(timeout=5)
        made = WebsocketClientPolicy("127.0.0.1", world.port)
        np.testing.assert_allclose(made.infer(observation())["actions"], want())
        made._ws.close()


def test_a_large_message_is_read_aside(bare: ClientConnection) -> None:
    big = observation()
    big["observation/image"] = np.zeros((2000, 2000, 3), np.uint8)
    bare.send(msgpack_numpy.packb(big))
    assert "another shape" in str(bare.recv(timeout=5))


def test_robots_share_batches_and_each_gets_its_own(world: World) -> None:
    count, barrier = 6, threading.Barrier(6)

    def drive(number: int) -> int:
        made = WebsocketClientPolicy("127.0.0.1", world.port)
        barrier.wait()
        largest = 0
        for turn in range(3):
            got = made.infer(observation(10.0 * number + turn, number))
            np.testing.assert_allclose(got["actions"], want(10.0 * number + turn, number))
            largest = max(largest, got["server_timing"]["largest_batch"])
        made._ws.close()
        return largest

    before = world.log.calls
    with ThreadPoolExecutor(count) as pool:
        largest = max(pool.map(drive, range(count)))
    assert largest >= 3
    assert world.log.calls - before < 0.7 * count * 3 * 5


def test_hanging_up_ends_what_is_under_way(bare: ClientConnection, world: World) -> None:
    bare.send(msgpack_numpy.packb(observation(prompt="slow")))  # a second of steps
    end = time.monotonic() + 5
    while not world.server.house.running and time.monotonic() < end:
        time.sleep(0.002)
    time.sleep(0.03)
    bare.close()
    world.settle(0.4)
    calls = world.log.calls
    time.sleep(0.05)
    assert world.log.calls == calls


def test_a_policy_is_chosen_by_name(world: World) -> None:
    with connect(f"ws://{world.server.address}/?model=driver") as robot:
        assert msgpack_numpy.unpackb(robot.recv())["model"] == "driver"
    for name, code in (("nobody", 404), ("scribe", 400)):
        with pytest.raises(InvalidStatus) as found, connect(f"ws://{world.server.address}/?model={name}"):
            pass
        assert found.value.response.status_code == code
        assert b'"model"' in (found.value.response.body or b"")


def test_more_robots_than_are_taken() -> None:
    with http_world(HttpLimits(robots=1)) as world:
        url = f"ws://{world.server.address}/"
        with connect(url), pytest.raises(InvalidStatus) as found, connect(url):
            pass
        assert found.value.response.status_code == 429
        end = time.monotonic() + 5
        while world.server.house.robots and time.monotonic() < end:
            time.sleep(0.01)
        with connect(url) as robot:
            robot.recv()
