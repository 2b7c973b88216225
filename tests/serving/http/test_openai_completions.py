"""Completions: OpenAI's own client, unmodified, over a real socket."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from http_world import World
from openai import OpenAI


@pytest.fixture
def client(world: World) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{world.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def test_a_text_goes_on(client: OpenAI, world: World) -> None:
    got = client.completions.create(model="scribe", prompt="a b", temperature=0, extra_body={"top_k": -1})
    assert got.object == "text_completion"
    assert [(c.index, c.text, c.finish_reason, c.logprobs) for c in got.choices] == [(0, "a b", "stop", None)]
    assert got.usage is not None
    assert (got.usage.prompt_tokens, got.usage.completion_tokens) == (2, 2)
    assert world.log.asked[-1][1].temperature == 0
    assert world.log.asked[-1][1].top_k == 0


def test_token_ids_reach_the_model(client: OpenAI, world: World) -> None:
    client.completions.create(model="scribe", prompt=[5, 6, 7])
    assert world.log.asked[-1][0] == [5, 6, 7]
    client.completions.create(model="scribe", prompt=[[5, 6], [7]])
    assert sorted(asked[0] for asked in world.log.asked[-2:]) == [[5, 6], [7]]


def test_several_prompts_with_several_answers_keep_their_places(client: OpenAI) -> None:
    got = client.completions.create(model="scribe", prompt=["a b", "c"], n=2)
    assert [(c.index, c.text) for c in got.choices] == [(0, "a b"), (1, "1:a 1:b"), (2, "c"), (3, "1:c")]
    assert got.usage is not None
    assert got.usage.prompt_tokens == 3
    stream = client.completions.create(
        model="scribe", prompt=["a b", "c"], n=2, stream=True, stream_options={"include_usage": True}
    )
    texts, ends = ["", "", "", ""], [""] * 4
    for chunk in stream:
        for choice in chunk.choices:
            texts[choice.index] += choice.text
            ends[choice.index] = choice.finish_reason or ends[choice.index]
        usage = chunk.usage
    assert texts == ["a b", "1:a 1:b", "c", "1:c"]
    assert ends == ["stop"] * 4
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (3, 6)


def test_more_prompts_than_run_at_one_time(client: OpenAI) -> None:
    prompts = [f"word{number}" for number in range(40)]
    got = client.completions.create(model="scribe", prompt=prompts)
    assert [choice.text for choice in got.choices] == prompts


def test_echo_puts_the_prompt_first(client: OpenAI) -> None:
    got = client.completions.create(model="scribe", prompt="a b", echo=True, max_tokens=1)
    assert got.choices[0].text == "a ba "
    stream = client.completions.create(model="scribe", prompt="a b", echo=True, max_tokens=1, stream=True)
    assert [c.choices[0].text for c in stream] == ["a b", "a "]


def test_log_probabilities_and_where_tokens_begin(client: OpenAI) -> None:
    got = client.completions.create(model="scribe", prompt="aa b", logprobs=2)
    logprobs = got.choices[0].logprobs
    assert logprobs is not None
    assert (logprobs.tokens, logprobs.text_offset, logprobs.token_logprobs) == (["aa ", "b"], [0, 3], [-0.5, -0.5])
    assert logprobs.top_logprobs == [{"aa ": -0.5, "é": -2.0}, {"b": -0.5, "é": -2.0}]
    stream = client.completions.create(model="scribe", prompt="aa b", logprobs=0, stream=True)
    told = [c.choices[0].logprobs for c in stream]
    assert [(lp.tokens, lp.text_offset) for lp in told if lp is not None] == [(["aa "], [0]), (["b"], [3])]


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"suffix": "end"}, "suffix"),
        ({"best_of": 3}, "best_of"),
        ({"echo": True, "logprobs": 1}, "logprobs"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [[]]}, "prompt"),
        ({"prompt": {"a": 1}}, "prompt"),
        ({"prompt": [1, "a"]}, "prompt"),
        ({"prompt": ["x"] * 257}, "prompt"),
        ({"messages": []}, "messages"),
        ({"logprobs": True}, "logprobs"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(http: httpx.Client, change: dict[str, Any], param: str) -> None:
    got = http.post("/v1/completions", json={"model": "scribe", "prompt": "x", **change})
    assert got.status_code == 400, got.text
    assert got.json()["error"]["param"].startswith(param), got.text


def test_one_failing_prompt_ends_the_others(client: OpenAI, world: World) -> None:
    slow = "word " * 60 + "pace=0.05"
    with pytest.raises(openai.InternalServerError):
        client.completions.create(model="scribe", prompt=[slow, "fail=0"])
    world.settle(1.0)
    with pytest.raises(openai.InternalServerError):
        client.completions.create(model="scribe", prompt="fail=0", stream=True)
    world.settle(1.0)
