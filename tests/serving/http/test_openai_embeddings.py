"""Embeddings: OpenAI's own client, unmodified (it asks for base64 where nothing is said)."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from http_world import World
from openai import OpenAI


def test_vectors_in_both_forms(world: World) -> None:
    with OpenAI(base_url=f"{world.url}/v1", api_key="none", max_retries=0) as client:
        plain = client.embeddings.create(model="mapper", input=["a b", "abcd"], encoding_format="float", dimensions=2)
        packed = client.embeddings.create(model="mapper", input=["a b", "abcd"])
        one = client.embeddings.create(model="mapper", input="abc")
    want = [pytest.approx([0.3, 0.2]), pytest.approx([0.4, 0.1])]
    assert [each.embedding for each in plain.data] == want
    assert [each.embedding for each in packed.data] == want
    assert [each.index for each in plain.data] == [0, 1]
    assert (plain.usage.prompt_tokens, plain.usage.total_tokens, plain.object) == (3, 3, "list")
    assert one.data[0].embedding == pytest.approx([0.3, 0.1])


def test_base64_is_asked_for_by_name(http: httpx.Client) -> None:
    got = http.post("/v1/embeddings", json={"model": "mapper", "input": "abc", "encoding_format": "base64"}).json()
    assert got["data"][0]["embedding"] == "mpmZPs3MzD0="  # float32 0.3, 0.1


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"input": ""}, "input[0]"),
        ({"input": ["a", " "]}, "input[1]"),
        ({"input": []}, "input"),
        ({"input": [1, 2]}, "input[0]"),
        ({"input": ["x"] * 257}, "input"),
        ({"input": "x" * 20000}, "input[0]"),
        ({"dimensions": 3}, "dimensions"),
        ({"encoding_format": "hex"}, "encoding_format"),
        ({"model": "scribe"}, "model"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(http: httpx.Client, change: dict[str, Any], param: str) -> None:
    got = http.post("/v1/embeddings", json={"model": "mapper", "input": "x", **change})
    assert (got.status_code, got.json()["error"]["param"]) == (400, param), got.text
