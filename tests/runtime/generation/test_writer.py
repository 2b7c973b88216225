"""The engine on a real runtime: together as alone, joining and leaving, and one that fails hurts nobody."""

from __future__ import annotations

import json
import math
import threading
from itertools import pairwise
from typing import Any

import pytest
import torch
from tiny_llama import CONFIG, END, pool_of, tensors, vocabulary, writer
from transformers import LlamaConfig, LlamaForCausalLM

from mstar_plan.errors import ComponentError, InvalidInputError, LimitExceededError, OverloadedError
from mstar_plan.families.language import language_graph
from mstar_plan.runtime.generation.text import TextDelta, TextOptions
from mstar_plan.runtime.generation.writer import Writer, WriterConfig
from mstar_plan.runtime.request import Value
from mstar_plan.runtime.runtime import Runtime
from mstar_plan.walks.batch import Batch


class Counting:
    """A model that writes the next number, always surely: token t is followed by t + 1, the last by the end."""

    device = torch.device("cpu")

    def __init__(self, broken: int = -1, follows: dict[int, int] | None = None) -> None:
        self.broken, self.reads = broken, []
        self.follows = torch.tensor([t + 1 for t in range(CONFIG.vocab_size - 1)] + [END])
        for token, following in (follows or {}).items():
            self.follows[token] = following

    def forward(self, tokens_M: Any, cache: Any, rows_R: Any) -> torch.Tensor:
        self.reads.append(len(tokens_M))
        if rows_R is None:
            return torch.empty(0, CONFIG.vocab_size)
        last = tokens_M[rows_R]
        logits = torch.zeros(len(last), CONFIG.vocab_size)
        logits[torch.arange(len(last)), self.follows[last]] = 50.0
        logits[last == self.broken] = float("nan")
        return logits


SIZES = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
         "num_key_value_heads", "head_dim", "max_position_embeddings", "rms_norm_eps")  # fmt: skip


def counting(broken: int = -1, tokens: int = 1024, follows: dict[int, int] | None = None, **settings: Any) -> Writer:
    config = WriterConfig(context=CONFIG.max_position_embeddings, wait_s=0.0, **settings)
    return Writer(Counting(broken, follows), pool_of(tokens=tokens), vocabulary(), config)


def tokens_of(deltas: Any, index: int = 0) -> list[int]:
    return [token for step in deltas for delta in step if delta.index == index for token in delta.tokens]


def text_of(deltas: Any, index: int = 0) -> str:
    return "".join(delta.text for step in deltas for delta in step if delta.index == index)


def alone(made: Writer, prompt: list[int], options: TextOptions) -> tuple[list[TextDelta], ...]:
    writing, steps, done = made.open(prompt, options), [], False
    while not done:
        out = made(Batch({"writing": writing}, 1))
        steps.append(out["deltas"])
        done = out["done"]
    return tuple(steps)


REQUESTS = [
    ([7] * 3, TextOptions(max_tokens=20, temperature=0)),
    (list(range(2, 90)), TextOptions(max_tokens=9, temperature=0)),
    ([50, 60], TextOptions(max_tokens=30, temperature=1.0, seed=3, top_p=0.9)),
    (list(range(30, 70)), TextOptions(max_tokens=12, temperature=0.7, seed=4, top_k=20, repetition_penalty=1.2)),
    ([9], TextOptions(max_tokens=1, temperature=0)),
    (list(range(100, 150)), TextOptions(max_tokens=15, temperature=1.3, seed=5, n=3)),
    ([200, 201], TextOptions(max_tokens=25, temperature=0.9, seed=6, frequency_penalty=0.5, min_p=0.02)),
    (list(range(2, 90)), TextOptions(max_tokens=20, temperature=0, presence_penalty=0.3)),
]


def test_together_as_alone() -> None:
    want = [alone(writer(), prompt, options) for prompt, options in REQUESTS]
    made = writer()
    with Runtime(language_graph("tiny", made)) as runtime:
        pending = [runtime.submit("generate", {"writing": made.open(*request)}) for request in REQUESTS]
        results = [request.result(60) for request in pending]
    for result, deltas, (prompt, options) in zip(results, want, REQUESTS, strict=True):
        for index in range(options.n):
            assert tokens_of(result.outputs["answers"], index) == tokens_of(deltas, index)
        assert result.outputs["usage"].prompt_tokens == len(prompt)
    assert max(result.timing.largest_batch for result in results) > 1
    assert made.pool.held == 0


def test_a_request_joins_and_leaves_between_steps() -> None:
    made = counting()
    with Runtime(language_graph("counting", made)) as runtime:
        slow = runtime.stream(
            "generate", {"writing": made.open([2], TextOptions(max_tokens=200, temperature=0))}, emit=["deltas"]
        )
        next(slow)
        quick = runtime.submit("generate", {"writing": made.open([99], TextOptions(max_tokens=3, temperature=0))})
        assert tokens_of(quick.result(30).outputs["answers"]) == [100, 101, 102]
        assert sum(isinstance(event, Value) for event in slow) < 200  # it went on meanwhile, and was not done
        assert made.pool.held == 0


def test_prompts_are_read_in_chunks_and_hold_nobody_up() -> None:
    made = counting(chunk=64, shared_chunk=16)
    alone(made, list(range(2, 202)), TextOptions(max_tokens=1, temperature=0))
    assert made.model.reads == [64, 64, 64, 8]
    made.model.reads.clear()
    made.pool.forget()
    first = made.open([5], TextOptions(max_tokens=50, temperature=0))
    made(Batch({"writing": first}, 1))
    second = made.open(list(range(2, 102)), TextOptions(max_tokens=2, temperature=0))
    third = made.open(list(range(3, 103)), TextOptions(max_tokens=2, temperature=0))
    for _ in range(3):
        made.run([Batch({"writing": each}, 1) for each in (first, second, third)])
    assert made.model.reads == [1, 17, 17, 17]  # 16 tokens of prompts beside the one that is written
    assert (second.reading, third.reading) == (52, 100)  # who came first is read first
    for each in (first, second, third):
        each.release()


def test_the_end_the_length_and_stop_texts() -> None:
    made = counting()
    last = CONFIG.vocab_size - 1
    steps = alone(made, [last - 1], TextOptions(max_tokens=9, temperature=0))
    assert tokens_of(steps) == [last, END]
    assert steps[-1][0].finish == "stop"
    steps = alone(made, [10], TextOptions(max_tokens=2, temperature=0))
    assert (tokens_of(steps), steps[-1][0].finish) == ([11, 12], "length")
    whole = text_of(alone(made, [40], TextOptions(max_tokens=9, temperature=0)))
    steps = alone(made, [40], TextOptions(max_tokens=9, temperature=0, stop=(whole[3:5],)))
    assert (text_of(steps), steps[-1][0].finish) == (whole[:3], "stop")
    steps = alone(made, [last - 1], TextOptions(max_tokens=4, temperature=0, ignore_end=True))
    assert END not in tokens_of(steps)


def test_log_probabilities_are_the_models_own() -> None:
    steps = alone(writer(), [5, 6], TextOptions(max_tokens=3, temperature=0, logprobs=2))
    for step in steps:
        [probability] = step[0].logprobs
        assert probability.token == step[0].tokens[0] == probability.top[0][1]
        assert probability.logprob == pytest.approx(probability.top[0][2])
        assert probability.top[0][2] >= probability.top[1][2]
    options = TextOptions(max_tokens=1, temperature=0, logprobs=20, logit_bias={99: 100.0})
    [[delta]] = alone(counting(), [5], options)
    [probability] = delta.logprobs
    others = -math.log(math.exp(50) + CONFIG.vocab_size - 1)
    assert (probability.token, probability.logprob) == (99, pytest.approx(others))  # what was biased is no probability
    assert probability.top[0][1] == 6
    assert len(probability.top) == 20


def test_a_schema_is_kept_whatever_the_model_would_write() -> None:
    schema = {
        "type": "object",
        "properties": {"ok": {"type": "boolean"}},
        "required": ["ok"],
        "additionalProperties": False,
    }
    for seed in range(3):
        steps = alone(writer(), [5], TextOptions(max_tokens=250, temperature=1.0, seed=seed, json_schema=schema))
        assert steps[-1][0].finish == "stop"
        assert isinstance(json.loads(text_of(steps))["ok"], bool)
    several = TextOptions(max_tokens=250, temperature=1.0, seed=9, json_schema=schema, n=3)
    steps = alone(writer(tokens=2048), [5], several)
    assert all(isinstance(json.loads(text_of(steps, index))["ok"], bool) for index in range(3))


def test_texts_come_whole_and_stop_across_tokens() -> None:
    made = vocabulary()
    spelled = made.encode("a é-b<c")
    follows = dict(pairwise([*spelled, END]))
    engine = counting(follows=follows)
    steps = alone(engine, spelled[:1], TextOptions(max_tokens=20, temperature=0))
    assert [delta.text for step in steps for delta in step] == [" ", "", "é", "-", "b", "<", "c", ""]
    cut = alone(engine, spelled[:1], TextOptions(max_tokens=3, temperature=0))
    assert (text_of(cut), cut[-1][0].finish) == (" é", "length")
    half = alone(engine, spelled[:1], TextOptions(max_tokens=2, temperature=0))
    assert text_of(half) == " \ufffd"
    for stop, out in (("é-", " "), ("b<c", " é-"), (" é", ""), ("c", " é-b<")):
        steps = alone(engine, spelled[:1], TextOptions(max_tokens=20, temperature=0, stop=(stop, "nothing")))
        assert (text_of(steps), steps[-1][0].finish) == (out, "stop")
    steps = alone(engine, spelled[:1], TextOptions(max_tokens=20, temperature=0, stop=("c!",)))
    assert text_of(steps) == " é-b<c"  # what was held back comes at the end


@pytest.mark.parametrize("penalty", [1.0, 1.4])
def test_greedy_tokens_are_those_of_transformers(penalty: float) -> None:
    config = LlamaConfig(**{n: getattr(CONFIG, n) for n in SIZES}, tie_word_embeddings=True, pad_token_id=END)
    model = LlamaForCausalLM(config).eval()
    model.load_state_dict(tensors(), strict=False)
    for prompt in ([7] * 3, list(range(40, 70))):
        with torch.inference_mode():
            want = model.generate(
                torch.tensor([prompt]),
                attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
                max_new_tokens=24,
                do_sample=False,
                repetition_penalty=penalty,
                eos_token_id=END,
            )
        options = TextOptions(max_tokens=24, temperature=0, repetition_penalty=penalty)
        assert tokens_of(alone(writer(), prompt, options)) == want[0, len(prompt) :].tolist()


@pytest.mark.parametrize("attention", ["sliced", "gathered"])
def test_a_known_prompt_changes_nothing_but_the_time(attention: str) -> None:
    made, prompt = writer(attention=attention), list(range(2, 90))
    options = TextOptions(max_tokens=20, temperature=1.0, seed=5, n=2)
    first = alone(made, prompt, options)
    again = made.open(prompt, options)
    assert (again.cached, again.usage.cached_tokens) == (80, 80)
    again.release()
    second = alone(made, prompt, options)
    for index in range(2):
        assert tokens_of(second, index) == tokens_of(first, index)
        assert tokens_of(alone(writer(), prompt, options), index) == tokens_of(first, index)


@pytest.mark.parametrize("answers", range(1, 17))
@pytest.mark.parametrize("prompt", [1, 16, 47, 100])
def test_answers_of_no_given_length_fit_the_pool(answers: int, prompt: int) -> None:
    made = counting(tokens=1024)
    try:
        writing = made.open([2] * prompt, TextOptions(n=answers))
    except LimitExceededError:
        assert answers * (prompt % 16 + 32) + prompt > 1024  # really no room for one token each
        return
    most = writing.options.max_tokens
    assert most >= 1
    writing.release()
    if most < 256 - prompt:
        with pytest.raises(LimitExceededError):
            made.open([2] * prompt, TextOptions(n=answers, max_tokens=most + 16))
    assert made.pool.held == 0


def test_a_joined_pass_that_fails_is_done_one_by_one() -> None:
    made = counting()
    forward, calls = made.model.forward, []

    def picky(tokens_M: Any, cache: Any, rows_R: Any) -> torch.Tensor:
        calls.append(len(rows_R))
        if len(rows_R) == 2:
            raise RuntimeError("out of memory")
        return forward(tokens_M, cache, rows_R)

    made.model.forward = picky
    with Runtime(language_graph("counting", made)) as runtime:
        pending = [
            runtime.submit("generate", {"writing": made.open([start], TextOptions(max_tokens=9, temperature=0))})
            for start in (10, 20)
        ]
        for start, request in zip((10, 20), pending, strict=True):
            assert tokens_of(request.result(30).outputs["answers"]) == list(range(start + 1, start + 10))
    assert 2 in calls


def test_a_mistake_of_ours_in_one_answer_hurts_nobody() -> None:
    made = counting()
    options = TextOptions(max_tokens=9, temperature=0, n=2)
    writings = [made.open([start], options) for start in (10, 20, 30)]

    def broken(token: int) -> str:
        raise ValueError("invalid prefix")

    writings[1].answers[0].text.add = broken
    batches = [Batch({"writing": writing}, 1) for writing in writings]
    answers = made.run(batches)
    assert isinstance(answers[1], ComponentError)
    assert "invalid prefix" in str(answers[1])
    kept = [batches[0], batches[2]]
    steps = [[answers[0]["deltas"]], [answers[2]["deltas"]]]
    for _ in range(8):
        for step, answer in zip(steps, made.run(kept), strict=True):
            step.append(answer["deltas"])
    for start, step in zip((10, 30), steps, strict=True):
        assert tokens_of(step, 0) == tokens_of(step, 1) == list(range(start + 1, start + 10))
    writings[1].release()
    assert made.pool.held == 0


def test_one_that_fails_hurts_nobody() -> None:
    made = counting(broken=77)
    with Runtime(language_graph("counting", made)) as runtime:
        starts = [10, 70, 20, 75, 30]
        pending = [
            runtime.submit("generate", {"writing": made.open([start], TextOptions(max_tokens=12, temperature=0))})
            for start in starts
        ]
        for start, request in zip(starts, pending, strict=True):
            if start in (70, 75):
                with pytest.raises(ComponentError, match="not finite"):
                    request.result(30)
            else:
                assert tokens_of(request.result(30).outputs["answers"]) == list(range(start + 1, start + 13))
    assert made.pool.held == 0


def test_taking_it_back_frees_its_pages() -> None:
    made = counting()
    with Runtime(language_graph("counting", made)) as runtime:
        events = runtime.stream(
            "generate", {"writing": made.open([2], TextOptions(max_tokens=200, temperature=0, n=2))}, emit=["deltas"]
        )
        next(events)
        assert made.pool.held > 0
        events.close()
        done = runtime.submit("generate", {"writing": made.open([9], TextOptions(max_tokens=1, temperature=0))})
        done.result(30)
        assert made.pool.held == 0
        before = made.open([3], TextOptions(max_tokens=5))
        request = runtime.submit("generate", {"writing": before})
        request.cancel()
        runtime.submit("generate", {"writing": made.open([9], TextOptions(max_tokens=1, temperature=0))}).result(30)
        assert made.pool.held == 0


def test_limits() -> None:
    made = counting(tokens=64)
    with pytest.raises(InvalidInputError, match="no token"):
        made.open([], TextOptions())
    with pytest.raises(LimitExceededError, match="context is 256"):
        made.open([2] * 256, TextOptions())
    with pytest.raises(LimitExceededError, match="context is 256"):
        made.open([2] * 10, TextOptions(max_tokens=247))
    with pytest.raises(LimitExceededError, match="the pool holds 64"):
        made.open([2] * 10, TextOptions(max_tokens=100))
    first = made.open([2] * 10, TextOptions(max_tokens=50))
    with pytest.raises(OverloadedError) as caught:
        made.open([2] * 10, TextOptions(max_tokens=50))
    assert caught.value.retry_after_s > 0
    first.release()
    made.open([2] * 10, TextOptions()).release()  # as many as there is room for


def test_who_waits_gets_room() -> None:
    made = counting(tokens=64)
    made.config = WriterConfig(context=256, wait_s=20.0)
    first = made.open([2] * 10, TextOptions(max_tokens=50))
    threading.Timer(0.1, first.release).start()
    made.open([2] * 10, TextOptions(max_tokens=50)).release()
    assert made.pool.held == 0
