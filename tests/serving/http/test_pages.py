"""Pages: health, metrics that count what happened, and a description of the routes, all made here."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest
from http_world import World, http_world
from prometheus_client.parser import text_string_to_metric_families
from pydantic import TypeAdapter


def counted(url: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    text = httpx.get(f"{url}/metrics").text
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_what_happened_is_counted() -> None:
    with http_world() as world:
        chat = {"model": "scribe", "messages": [{"role": "user", "content": "a b c"}]}
        httpx.post(f"{world.url}/v1/chat/completions", json=chat)
        httpx.post(f"{world.url}/v1/chat/completions", json={**chat, "stream": True})
        httpx.post(f"{world.url}/v1/chat/completions", json={**chat, "n": 99})
        httpx.post(f"{world.url}/v1/chat/completions", json={**chat, "model": "x" * 1000})
        httpx.post(f"{world.url}/v1/audio/speech", json={"model": "speaker", "input": "a"})
        httpx.get(f"{world.url}/nowhere/{'x' * 100}")
        chat["messages"] = [{"role": "user", "content": "w " * 50 + "pace=0.05"}]
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{world.url}/v1/chat/completions", json=chat, timeout=0.2)
        with httpx.stream("POST", f"{world.url}/v1/chat/completions", json={**chat, "stream": True}) as streamed:
            next(streamed.iter_lines())
        world.settle()
        got = counted(world.url)
    route = ("route", "/v1/chat/completions")
    assert got["mstar_http_requests_total", (("code", "200"), ("model", "scribe"), route)] == 2
    assert got["mstar_http_requests_total", (("code", "400"), ("model", "scribe"), route)] == 1
    assert got["mstar_http_requests_total", (("code", "404"), ("model", ""), route)] == 1
    assert got["mstar_http_requests_total", (("code", "499"), ("model", "scribe"), route)] == 2
    assert got["mstar_http_requests_total", (("code", "404"), ("model", ""), ("route", "other"))] == 1
    assert got["mstar_tokens_written_total", (("model", "scribe"),)] == 6
    assert got["mstar_tokens_read_total", (("model", "scribe"),)] == 6
    assert got["mstar_first_output_seconds_count", (("kind", "token"), ("model", "scribe"))] == 4
    assert got["mstar_first_output_seconds_count", (("kind", "audio"), ("model", "speaker"))] == 1
    assert got["mstar_batch_size_count", (("model", "scribe"),)] == 2
    assert got["mstar_errors_total", (("reason", "LIMIT_EXCEEDED"),)] == 1
    assert got["mstar_errors_total", (("reason", "NOT_FOUND"),)] == 2
    assert got["mstar_http_seconds_count", (("model", "scribe"), route)] == 5
    assert not any("xxx" in str(key) for key in got)  # what users make up is no label


def test_health(http: httpx.Client) -> None:
    assert (http.get("/healthz").text, http.get("/readyz").text) == ("OK\n", "ready\n")


def test_the_description_names_every_route_and_its_fields(http: httpx.Client) -> None:
    described = http.get("/openapi.json").json()
    assert set(described["paths"]) == {
        "/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/models", "/v1/models/{model}",
        "/v1/audio/speech", "/v1/audio/transcriptions", "/v1/walks", "/v1/walks/{model}/{walk}", "/healthz", "/readyz",
        "/metrics",
    }  # fmt: skip
    schemas = described["components"]["schemas"]
    body = described["paths"]["/v1/chat/completions"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    chat = schemas[body["$ref"].rpartition("/")[2]]
    assert {"model", "messages", "tools", "response_format", "stream", "top_k", "logprobs"} <= set(chat["properties"])
    assert set(chat["required"]) == {"model", "messages"}
    answer = described["paths"]["/v1/chat/completions"]["post"]["responses"]["200"]["content"]["application/json"]
    assert answer["schema"]["$ref"].endswith("/ChatCompletion")
    form = described["paths"]["/v1/audio/transcriptions"]["post"]["requestBody"]["content"]["multipart/form-data"]
    assert set(schemas[form["schema"]["$ref"].rpartition("/")[2]]["required"]) == {"file", "model"}


def refs(value: Any) -> set[str]:
    if isinstance(value, dict):
        return {value["$ref"]} if isinstance(value.get("$ref"), str) else set().union(*map(refs, value.values()), set())
    return set().union(*map(refs, value), set()) if isinstance(value, list) else set()


def test_every_reference_of_the_description_is_there(http: httpx.Client) -> None:
    described = http.get("/openapi.json").json()
    known = {f"#/components/schemas/{name}" for name in described["components"]["schemas"]}
    assert refs(described) <= known


def test_answers_are_what_the_description_says(http: httpx.Client) -> None:
    from mstar_plan.serving.http.chat_body import ChatCompletion
    from mstar_plan.serving.http.openai_completions import Completion
    from mstar_plan.serving.http.openai_models import Models
    from mstar_plan.serving.http.walks import FacesAnswer, WalkAnswer

    chat = {"model": "scribe", "messages": [{"role": "user", "content": "a"}]}
    for kind, got in (
        (ChatCompletion, http.post("/v1/chat/completions", json=chat)),
        (Completion, http.post("/v1/completions", json={"model": "scribe", "prompt": "a"})),
        (WalkAnswer, http.post("/v1/walks/doubler/double", json={"inputs": {"x": [[1, 2]]}})),
        (Models, http.get("/v1/models")),
        (FacesAnswer, http.get("/v1/walks")),
    ):
        TypeAdapter(kind).validate_json(got.content, strict=True)


def test_the_page_for_people_loads_nothing(http: httpx.Client, world: World) -> None:
    page = http.get("/", follow_redirects=True)
    assert page.url.path == "/docs"
    assert "/v1/chat/completions" in page.text
    assert "temperature" in page.text
    assert "<script" not in page.text
    assert re.findall(r'(?:src|href)="([^"]*)"', page.text) == ["/openapi.json"]
    assert http.get("/redoc").status_code == 404
