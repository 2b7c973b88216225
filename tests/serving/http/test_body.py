"""Bodies that are damaged, huge, deep, or of the wrong type: always an answer in 4xx, never a failure of the server."""

from __future__ import annotations

import json
import random
from typing import Any

import httpx
import pytest
from http_world import World
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

GOOD: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "model": "scribe",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "a b"}]}],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"$defs": {}}}}],
        "tool_choice": "auto",
        "response_format": {"type": "json_object"},
        "stop": ["x"],
        "n": 1,
        "temperature": 0.5,
        "logit_bias": {"1": 1.0},
    },
    "/v1/completions": {"model": "scribe", "prompt": ["a"], "n": 1, "logprobs": 1, "max_tokens": 4},
    "/v1/embeddings": {"model": "mapper", "input": ["a"], "encoding_format": "float"},
    "/v1/audio/speech": {"model": "speaker", "input": "a", "voice": "low", "speed": 1.0, "response_format": "wav"},
    "/v1/walks/doubler/double": {
        "inputs": {"x": {"dtype": "float32", "shape": [1, 2], "data": [1, 2]}, "steps": 1, "extra": {"a": [1]}},
        "stream": [],
        "encoding": "list",
    },
}
JSON = {"content-type": "application/json"}
ODD = [
    None, True, False, 0, -1, 1.5, 2**31, 2**63, 2**200, 1e308, -1e308, "", "x", "\x00", "é" * 100, "\U0001d518",
    [], [[]], {}, {"a": 1}, [1, "a", None], "9" * 5000, {"type": "text"}, [{}], {"$ref": "#/$defs/x"}, {"": ""},
]  # fmt: skip


@pytest.mark.parametrize("path", GOOD)
def test_the_good_one_is_good(http: httpx.Client, path: str) -> None:
    assert http.post(path, json=GOOD[path]).status_code == 200


@pytest.mark.parametrize("path", GOOD)
@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"null", b"[]", b'"text"', b"5", b"\xff\xfe", b"{}" * 2, b'{"model": NaN}', b"[" * 100_000,
        b'{"a":' * 5_000, b'{"model": "\\ud800"}', b'{"model": ' + b"9" * 5000 + b"}", b'{"model": "a\x00b"}',
        b'{"model": "scribe", "model": 5}', b"\xef\xbb\xbf{}",
    ],
)  # fmt: skip
def test_bodies_that_are_none(http: httpx.Client, path: str, body: bytes) -> None:
    got = http.post(path, content=body, headers=JSON)
    assert got.status_code == 400, got.text
    assert set(got.json()["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ";;"])
def test_a_body_that_does_not_say_that_it_is_json(http: httpx.Client, kind: str | None) -> None:
    headers = {"content-type": kind} if kind else {}
    got = http.post("/v1/embeddings", content=json.dumps(GOOD["/v1/embeddings"]), headers=headers)
    assert got.status_code == 400
    assert "application/json" in got.json()["error"]["message"]


def places(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """All places in a body."""
    found = [place]
    if isinstance(value, dict):
        found += [p for key, each in value.items() for p in places(each, (*place, key))]
    if isinstance(value, list):
        found += [p for number, each in enumerate(value) for p in places(each, (*place, number))]
    return found


def damaged(body: Any, place: tuple[Any, ...], value: Any) -> Any:
    """The body with another value at a place."""
    if not place:
        return value
    copied = dict(body) if isinstance(body, dict) else list(body)
    copied[place[0]] = damaged(body[place[0]], place[1:], value)
    return copied


@pytest.mark.parametrize("path", GOOD)
def test_odd_values_at_every_place(http: httpx.Client, path: str) -> None:
    chosen = random.Random(0)
    cases = [(place, value) for place in places(GOOD[path]) for value in ODD]
    for place, value in chosen.sample(cases, min(len(cases), 120)):
        got = http.post(path, content=json.dumps(damaged(GOOD[path], place, value)), headers=JSON)
        assert got.status_code < 500, (place, value, got.text)
        if got.status_code != 200:
            assert got.json()["error"]["message"], (place, value)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=st.sampled_from(sorted(GOOD)), values=st.lists(json_values, min_size=1, max_size=3), data=st.data())
def test_any_json_is_answered(world: World, path: str, values: list[Any], data: st.DataObject) -> None:
    names = [*GOOD[path], "frob"]
    body = {**GOOD[path], **{data.draw(st.sampled_from(names)): value for value in values}}
    text = json.dumps(body).encode("utf-8", "surrogatepass")
    got = httpx.post(world.url + path, content=text, headers=JSON, timeout=20)
    assert got.status_code < 500, got.text


def test_large_bodies_are_read_aside(http: httpx.Client) -> None:
    body = {"inputs": {"x": [[1.0, 2.0]] * 40_000, "steps": 1}, "encoding": "base64"}
    got = http.post("/v1/walks/doubler/double", json=body)
    assert got.json()["outputs"]["y"]["shape"] == [40_000, 2]


def test_paths_and_methods_that_are_not_there(http: httpx.Client) -> None:
    for method, path, code in (
        ("GET", "/nowhere", 404),
        ("GET", "/v1/chat/completions", 405),
        ("DELETE", "/v1/models", 405),
        ("POST", "/v1/models", 405),
        ("GET", "/v1/walks/a/b/c", 404),
        ("POST", "/v1/audio/translations", 404),
    ):
        got = http.request(method, path)
        assert got.status_code == code, (method, path)
        assert got.json()["error"]["type"] == "invalid_request_error"
