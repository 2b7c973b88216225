"""Walks: any public walk as JSON, whole and as a stream, by curl and by a bare client."""

from __future__ import annotations

import base64
import json
import struct
import subprocess
from typing import Any

import httpx
import pytest
from http_world import World

URL = "/v1/walks/doubler/double"


def events_of(text: str) -> list[Any]:
    assert text.endswith("data: [DONE]\n\n")
    return [json.loads(line[6:]) for line in text.splitlines() if line and line != "data: [DONE]"]


def test_a_walk_runs(http: httpx.Client) -> None:
    got = http.post(URL, json={"inputs": {"x": {"dtype": "float32", "shape": [1, 2], "data": [1, 2.5]}, "steps": 3}})
    assert got.status_code == 200, got.text
    answer = got.json()
    assert answer["outputs"]["y"] == {"dtype": "float32", "shape": [1, 2], "data": [8.0, 20.0]}
    assert answer["outputs"]["all"]["shape"] == [1, 3, 2]
    assert answer["timing"]["largest_batch"] == 1
    assert (answer["model"], answer["walk"]) == ("doubler", "double")


def test_curl_runs_it(world: World) -> None:
    body = '{"inputs": {"x": [[1, 2]]}}'
    command = ["curl", "-sS", f"{world.url}{URL}", "-H", "content-type: application/json", "-d", body]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    assert json.loads(done.stdout)["outputs"]["y"]["data"] == [4.0, 8.0]


def test_bytes_in_and_out(http: httpx.Client) -> None:
    data = base64.b64encode(struct.pack("<4f", 1, 2, 3, 0.1)).decode()
    inputs = {"x": {"dtype": "float32", "shape": [2, 2], "data": data}, "steps": 1}
    got = http.post(URL, json={"inputs": inputs, "encoding": "base64"}).json()["outputs"]["y"]
    assert struct.unpack("<4f", base64.b64decode(got["data"])) == struct.unpack("<4f", struct.pack("<4f", 2, 4, 6, 0.2))


def test_a_stream_of_its_values(http: httpx.Client) -> None:
    got = http.post(URL, json={"inputs": {"x": [[1, 2]], "steps": 3}, "stream": ["y"]})
    assert got.headers["content-type"].startswith("text/event-stream")
    *steps, last = events_of(got.text)
    assert [(e["wire"], e["index"], e["value"]["data"]) for e in steps] == [
        ("y", 0, [2.0, 4.0]),
        ("y", 1, [4.0, 8.0]),
        ("y", 2, [8.0, 16.0]),
    ]
    assert last["outputs"]["y"]["data"] == [8.0, 16.0]


def test_what_can_be_asked_is_listed(http: httpx.Client) -> None:
    [face] = http.get("/v1/walks").json()["data"]
    assert face == http.get(URL).json()
    x = {
        "kind": "tensor",
        "dtype": "float32",
        "shape": [None, 2],
        "description": "numbers",
        "unit": "m",
        "required": True,
    }
    assert face["inputs"]["x"] == x
    assert (face["inputs"]["steps"]["required"], face["inputs"]["steps"]["default"]) == (False, 2)
    assert set(face["streams"]) == {"y"}


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({}, "needs input 'x'"),
        ({"x": [[1, 2]], "stepps": 1}, "did you mean 'steps'"),
        ({"x": [[1, 2]], "steps": "3"}, "send integer"),
        ({"x": [[1, 2]], "steps": True}, "send integer"),
        ({"x": [[1, 2]], "steps": 99}, "its limit is 8"),
        ({"x": [[1, 2]], "label": "far too long a text"}, "at most 10"),
        ({"x": [[1, 2, 3]]}, "has shape [1, 3]"),
        ({"x": [[1, 2], [3]]}, "uneven"),
        ({"x": [[1, [2]]]}, "uneven"),
        ({"x": []}, "has shape [0]"),
        ({"x": "AAAA"}, "shape"),
        ({"x": None}, "holds 'None'"),
        ({"x": [[1, True]]}, "holds 'True'"),
        ({"x": [["1", 2]]}, "holds '1'"),
        ({"x": [[1, 1e39]]}, "not finite"),
        ({"x": [[1, 10**400]]}, "fit"),
        ({"x": {"dtype": "float32", "shape": [1, 2], "data": "!!"}}, "base64"),
        ({"x": {"dtype": "float32", "shape": [1, 2], "data": "AAAAAA=="}}, "truncated"),
        ({"x": {"dtype": "float32", "shape": [1, 2], "data": base64.b64encode(b"\0\0\xc0\x7f" * 2).decode()}}, "NaN"),
        ({"x": {"dtype": "float32", "shape": [2**62, 2**62], "data": ""}}, "max_tensor_elements"),
        ({"x": {"dtype": "float32", "shape": [-1, 2], "data": []}}, "negative"),
        ({"x": {"dtype": "float32", "shape": [1.0, 2], "data": [1, 2]}}, "whole numbers"),
        ({"x": {"dtype": "float32", "shape": [1, 2], "data": [1]}}, "1 numbers"),
        ({"x": {"dtype": "object", "shape": [1, 2], "data": [1, 2]}}, "dtype"),
        ({"x": {"dtype": "int64", "shape": [1, 2], "data": [1, 2]}}, "send float32"),
        ({"x": {"dtype": 5, "data": [[1, 2]]}}, "dtype"),
        ({"x": {"values": [1]}}, "dtype, shape and data"),
        ({"x": [[1, 2]], "extra": {"a": [1, {"b": 0}]}, "steps": -1}, "steps"),
    ],
)
def test_inputs_that_do_not_fit(http: httpx.Client, inputs: Any, said: str) -> None:
    got = http.post(URL, content=json.dumps({"inputs": inputs}), headers={"content-type": "application/json"})
    assert got.status_code == 400, got.text
    assert said in got.json()["error"]["message"], got.text


def test_numbers_that_json_cannot_hold(http: httpx.Client) -> None:
    for inputs in ('{"x": [[NaN, 1]]}', '{"x": [[1, 2]], "extra": {"a": [1e999]}}', '{"x": [[1e999, 1]]}'):
        body = f'{{"inputs": {inputs}}}'
        got = http.post(URL, content=body, headers={"content-type": "application/json"})
        assert got.status_code == 400, got.text


def test_walks_and_streams_that_are_not_there(http: httpx.Client) -> None:
    assert http.post("/v1/walks/doubler/duble", json={}).json()["error"]["message"].endswith("(known: double)")
    assert http.post("/v1/walks/dubler/double", json={}).status_code == 404
    got = http.post(URL, json={"inputs": {"x": [[1, 2]]}, "stream": ["z"]})
    assert (got.status_code, got.json()["error"]["param"]) == (400, "stream")
