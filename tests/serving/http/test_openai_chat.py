"""Chat: OpenAI's own client, unmodified, over a real socket."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import openai
import pytest
from http_world import World
from openai import OpenAI
from PIL import Image

PARAMETERS = {
    "type": "object",
    "properties": {"x": {"$ref": "#/$defs/n"}},
    "$defs": {"n": {"type": "integer"}},
}
TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "d",
            "parameters": PARAMETERS,
        },
    }
    for name in ("look", "grab")
]


@pytest.fixture
def client(world: World) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{world.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def user(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


def test_an_answer_and_its_usage(client: OpenAI) -> None:
    got = client.chat.completions.create(model="scribe", messages=user("a big world"))
    [choice] = got.choices
    assert (choice.message.role, choice.message.content, choice.finish_reason) == ("assistant", "a big world", "stop")
    assert got.usage is not None
    assert (got.usage.prompt_tokens, got.usage.completion_tokens, got.usage.total_tokens) == (3, 3, 6)
    assert got.usage.prompt_tokens_details is not None
    assert got.usage.prompt_tokens_details.cached_tokens == 1
    assert got.model == "scribe"
    assert got.object == "chat.completion"


def test_a_stream_gives_the_same_text_with_usage_last(client: OpenAI) -> None:
    stream = client.chat.completions.create(
        model="scribe", messages=user("a big world"), stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert chunks[0].choices[0].delta.role == "assistant"
    texts = [c.choices[0].delta.content for c in chunks if c.choices and c.choices[0].delta.content]
    assert texts == ["a ", "big ", "world"]
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 3
    assert all(c.usage is None for c in chunks[:-1])
    assert len({c.id for c in chunks}) == 1


def test_a_stream_is_sent_as_it_is_written(client: OpenAI, world: World) -> None:
    stream = client.chat.completions.create(model="scribe", messages=user("a b pace=0.15"), stream=True)
    running = []
    for chunk in stream:
        if chunk.choices[0].delta.content:
            running.append(world.server.house.running)
    assert running[0] == 1  # the walk still ran when its first word was here


def test_options_reach_the_model(client: OpenAI, world: World) -> None:
    client.chat.completions.create(
        model="scribe",
        messages=[{"role": "developer", "content": "be good"}, *user("a b c")],
        temperature=0.5,
        top_p=0.25,
        n=2,
        seed=7,
        stop=["x", "y"],
        presence_penalty=0.5,
        frequency_penalty=-0.5,
        max_completion_tokens=2,
        logit_bias={"5": -3},
        user="me",
        metadata={"a": "b"},
        store=False,
        extra_body={"top_k": 4, "min_p": 0.125, "repetition_penalty": 1.5, "ignore_eos": True},
    )
    messages, options, _ = world.log.asked[-1]
    assert [m.role for m in messages] == ["system", "user"]
    assert (options.temperature, options.top_p, options.n, options.seed) == (0.5, 0.25, 2, 7)
    assert (options.stop, options.presence_penalty, options.frequency_penalty) == (("x", "y"), 0.5, -0.5)
    assert (options.max_tokens, dict(options.logit_bias)) == (2, {5: -3.0})
    assert (options.top_k, options.min_p, options.repetition_penalty, options.ignore_end) == (4, 0.125, 1.5, True)


def test_several_answers_and_their_ends(client: OpenAI) -> None:
    got = client.chat.completions.create(model="scribe", messages=user("a b c"), n=2, max_tokens=2)
    assert [c.message.content for c in got.choices] == ["a b ", "1:a 1:b "]
    assert [c.finish_reason for c in got.choices] == ["length", "length"]
    stream = client.chat.completions.create(model="scribe", messages=user("a b c"), n=2, max_tokens=2, stream=True)
    texts = {0: "", 1: ""}
    for chunk in stream:
        texts[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert texts == {0: "a b ", 1: "1:a 1:b "}


def test_log_probabilities(client: OpenAI) -> None:
    got = client.chat.completions.create(
        model="scribe", messages=user("a b"), logprobs=True, top_logprobs=3, max_tokens=1
    )
    logprobs = got.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    [token] = logprobs.content
    assert (token.token, token.logprob, token.bytes) == ("a ", -0.5, [97, 32])
    assert [(top.token, top.logprob) for top in token.top_logprobs] == [("a ", -0.5), ("é", -2.0), ("never", -9999.0)]
    assert token.top_logprobs[1].bytes == [195, 169]
    plain = client.chat.completions.create(model="scribe", messages=user("a"), logprobs=True)
    assert plain.choices[0].logprobs.content[0].top_logprobs == []  # type: ignore[union-attr,index]
    stream = client.chat.completions.create(model="scribe", messages=user("a b"), logprobs=True, stream=True)
    told = [c.choices[0].logprobs for c in stream]
    assert [lp.content[0].token for lp in told if lp is not None and lp.content] == ["a ", "b"]


@pytest.mark.parametrize("streamed", [False, True])
def test_a_tool_call_of_the_models_own_accord(client: OpenAI, world: World, streamed: bool) -> None:
    kept = {"model": "scribe", "messages": user("please use grab now"), "tools": TOOLS}
    if not streamed:
        got = client.chat.completions.create(**kept)
        [choice] = got.choices
        content, finish = choice.message.content, choice.finish_reason
        [call] = choice.message.tool_calls or []
        name, arguments, number = call.function.name, call.function.arguments, call.id
    else:
        chunks = list(client.chat.completions.create(**kept, stream=True))
        texts = [c.choices[0].delta.content or "" for c in chunks]
        content, finish = "".join(texts).strip(), chunks[-1].choices[0].finish_reason
        assert "Sure. " in texts  # what comes before the call is not held back
        [call] = [c for chunk in chunks for c in chunk.choices[0].delta.tool_calls or []]
        assert call.index == 0
        name, arguments, number = call.function.name, call.function.arguments, call.id
    assert (content, finish) == ("Sure.", "tool_calls")
    assert (name, json.loads(arguments)) == ("grab", {"x": 1})
    assert number.startswith("call_")
    assert [tool.name for tool in world.log.asked[-1][2]] == ["look", "grab"]


@pytest.mark.parametrize("streamed", [False, True])
def test_a_tool_that_must_be_used(client: OpenAI, world: World, streamed: bool) -> None:
    choice: Any = {"type": "function", "function": {"name": "look"}}
    kept: Any = {"model": "scribe", "messages": user("hi"), "tools": TOOLS, "tool_choice": choice}
    if streamed:
        chunks = list(client.chat.completions.create(**kept, stream=True))
        assert not any(c.choices[0].delta.content for c in chunks)
        [call] = [c for chunk in chunks for c in chunk.choices[0].delta.tool_calls or []]
    else:
        got = client.chat.completions.create(**kept)
        assert got.choices[0].message.content is None
        assert got.choices[0].finish_reason == "tool_calls"
        [call] = got.choices[0].message.tool_calls
    assert call.function.name == "look"
    _, options, tools = world.log.asked[-1]
    assert [tool.name for tool in tools] == ["look"]
    schema = options.json_schema
    assert schema["properties"]["name"] == {"const": "look"}
    assert schema["properties"]["arguments"]["properties"]["x"] == {"$ref": "#/$defs/0_n"}
    assert schema["$defs"] == {"0_n": {"type": "integer"}}


def test_no_tools_if_none_are_wanted(client: OpenAI, world: World) -> None:
    got = client.chat.completions.create(model="scribe", messages=user("use grab"), tools=TOOLS, tool_choice="none")
    assert got.choices[0].message.content == "use grab"
    assert world.log.asked[-1][2] == ()


def test_a_tools_answer_goes_back_to_the_model(client: OpenAI, world: World) -> None:
    call: Any = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    messages: list[Any] = [
        *user("hi"),
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "a cup"},
    ]
    client.chat.completions.create(model="scribe", messages=messages, tools=TOOLS)
    asked = world.log.asked[-1][0]
    assert asked[1].tool_calls[0].name == "look"
    assert (asked[2].role, asked[2].content, asked[2].tool_call_id) == ("tool", "a cup", "call_1")


def test_formats_of_the_answer(client: OpenAI, world: World) -> None:
    got = client.chat.completions.create(model="scribe", messages=user("x"), response_format={"type": "json_object"})
    assert json.loads(got.choices[0].message.content or "") == {"ok": True}
    assert world.log.asked[-1][1].json_schema == {}
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}}
    wanted: Any = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": True}}
    client.chat.completions.create(model="scribe", messages=user("x"), response_format=wanted)
    assert world.log.asked[-1][1].json_schema == schema
    client.chat.completions.create(model="scribe", messages=user("x"), response_format={"type": "text"})
    assert world.log.asked[-1][1].json_schema is None


def data_url(pixels: np.ndarray) -> str:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def test_images_reach_the_model_bit_for_bit(client: OpenAI, world: World) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    parts: list[Any] = [
        {"type": "text", "text": "what is it"},
        {"type": "image_url", "image_url": {"url": data_url(pixels), "detail": "auto"}},
        {"type": "text", "text": "tell"},
    ]
    client.chat.completions.create(model="scribe", messages=[{"role": "user", "content": parts}])
    [message] = world.log.asked[-1][0]
    assert message.content == "what is it\ntell"
    np.testing.assert_array_equal(message.images[0], pixels)


def test_an_image_is_never_fetched(client: OpenAI) -> None:
    parts: list[Any] = [{"type": "image_url", "image_url": {"url": "http://127.0.0.1:1/secret.png"}}]
    with pytest.raises(openai.BadRequestError, match="fetches nothing"):
        client.chat.completions.create(model="scribe", messages=[{"role": "user", "content": parts}])


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"frobnicate": 1}, "frobnicate"),
        ({"audio": {"voice": "x"}}, "audio"),
        ({"modalities": ["audio"]}, "modalities"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"n": 17}, "n"),
        ({"n": 0}, "n"),
        ({"n": 1.5}, "n"),
        ({"n": "1"}, "n"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": -1}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"max_tokens": 10**9}, "max_tokens"),
        ({"max_tokens": 3, "max_completion_tokens": 4}, "max_completion_tokens"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "logprobs"),
        ({"stop": [""]}, "stop"),
        ({"stop": ["x"] * 17}, "stop"),
        ({"logit_bias": {"word": 1}}, "logit_bias"),
        ({"logit_bias": {"1": 1000}}, "logit_bias"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "fly"}}}, "tool_choice"),
        ({"tools": [{**TOOLS[0], "function": {**TOOLS[0]["function"], "name": "no name"}}]}, "tools"),
        ({"tools": [TOOLS[0], TOOLS[0]]}, "tools"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"response_format": {"type": "xml"}}, "response_format"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "king", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
        ({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "messages[0].content[0]"),
        ({"messages": 5}, "messages"),
        ({"deadline_s": 1e9}, "deadline_s"),
        ({"deadline_s": -1}, "deadline_s"),
        ({"seed": 2**70}, "seed"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(http: httpx.Client, change: dict[str, Any], param: str) -> None:
    got = http.post("/v1/chat/completions", json={"model": "scribe", "messages": user("x"), **change})
    assert got.status_code == 400, got.text
    error = got.json()["error"]
    assert error["param"] == param, error
    assert error["type"] == "invalid_request_error"


def test_fields_that_change_nothing_are_taken(http: httpx.Client) -> None:
    idle = {
        "user": "u", "metadata": {}, "store": True, "service_tier": "auto", "parallel_tool_calls": True,
        "modalities": ["text"], "audio": None, "n": None, "tools": None, "temperature": None, "stream": False,
    }  # fmt: skip
    got = http.post("/v1/chat/completions", json={"model": "scribe", "messages": user("x"), **idle})
    assert got.status_code == 200, got.text


def test_a_model_that_is_not_there_or_cannot(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="did you mean 'scribe'") as found:
        client.chat.completions.create(model="scrib", messages=user("x"))
    assert found.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError, match="does not write text; these do: scribe"):
        client.chat.completions.create(model="driver", messages=user("x"))


def test_a_full_house_says_when_to_come_again(client: OpenAI) -> None:
    with pytest.raises(openai.RateLimitError) as found:
        client.chat.completions.create(model="scribe", messages=user("full"))
    assert found.value.response.headers["retry-after"] == "3"
    assert found.value.response.headers["retry-after-ms"] == "2500"


def test_a_bug_tells_nothing_of_the_server(http: httpx.Client, caplog: pytest.LogCaptureFixture) -> None:
    got = http.post("/v1/chat/completions", json={"model": "scribe", "messages": user("break")})
    assert got.status_code == 500
    assert "secret" not in got.text
    assert "a secret of the server" in caplog.text


def test_a_failing_model_is_an_error_before_the_first_word_and_after_it(client: OpenAI) -> None:
    with pytest.raises(openai.InternalServerError, match="write"):
        client.chat.completions.create(model="scribe", messages=user("fail=0 b c"), stream=True)
    stream = client.chat.completions.create(model="scribe", messages=user("fail=2 b c d"), stream=True)
    texts: list[str | None] = []
    with pytest.raises(openai.APIError, match="write"):
        texts.extend(chunk.choices[0].delta.content for chunk in stream)
    assert texts == ["", "fail=2 ", "b "]


def test_a_deadline_ends_it(client: OpenAI, world: World) -> None:
    words = "word " * 50 + "pace=0.05"
    with pytest.raises(openai.APIStatusError) as found:
        client.chat.completions.create(model="scribe", messages=user(words), extra_body={"deadline_s": 0.2})
    assert found.value.status_code == 504
    world.settle(1.0)
