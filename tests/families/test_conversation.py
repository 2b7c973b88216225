"""A conversation's walk, with a language model that follows a script: it speaks while the model still writes."""

from __future__ import annotations

import functools
import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from speech_parts import Held, activity, script_begin, scripted_language, silence, speaker, spoken, transcriber, words
from walk_driver import run

from mstar_plan.errors import ComponentError, OverloadedError, WalkError
from mstar_plan.families.abilities import ChatMessage, TextOptions
from mstar_plan.families.conversation import MANNERS, AskChat, Dialogue, assistant_graph
from mstar_plan.models.speech.hearing import hearing_graph
from mstar_plan.models.speech.speaking import speaking_graph
from mstar_plan.models.speech.transcriber import Passage
from mstar_plan.runtime.placement import Placement
from mstar_plan.runtime.request import Done, Value
from mstar_plan.runtime.runtime import Runtime
from mstar_plan.types import FloatArray
from mstar_plan.walks.graph import Graph

ANSWER = "I think it is **Paris**. It has 2 million people, e.g. Dr. Martin! Is there more"
QUESTION = "What is the capital of France?"


def in_tokens(text: str, seed: int = 0) -> list[str]:
    rng, parts = random.Random(seed), []
    while text:
        size = rng.randint(1, 6)
        parts.append(text[:size])
        text = text[size:]
    return [*parts, ""]


def assistant(
    script: Callable[[str], Sequence[str]] = lambda heard: in_tokens(ANSWER), language: Graph | None = None
) -> Graph:
    language = language or scripted_language()
    return assistant_graph(
        "assistant",
        hearing=hearing_graph("ears", activity(), transcriber()),
        language=language,
        generate=language.walks["scripted"],
        ask=AskChat(script_begin(script), ("script",)),
        speaking=speaking_graph("mouth", speaker()),
        speaker=speaker(),
        silent={"answers": ()},
    )


def values(audio: FloatArray, messages: Sequence[ChatMessage] = ()) -> dict[str, Any]:
    return {
        "microphone": torch.from_numpy(audio)[None],
        "language": "",
        "prompt": "",
        "dialogue": Dialogue(tuple(messages), TextOptions()),
        "voice": "",
        "speed": 1.0,
        "seed": 0,
    }


@pytest.fixture
def question(monkeypatch: pytest.MonkeyPatch) -> FloatArray:
    """Speech; what it says is known, so that it is not heard again in every test."""
    found = passages()
    monkeypatch.setattr(transcriber(), "hear", lambda *_: found)
    return spoken(QUESTION)


@functools.cache
def passages() -> tuple[Passage, ...]:
    return transcriber().hear(spoken(QUESTION))


def plain_speech(text: str) -> torch.Tensor:
    given = {"text": text, "voice": "", "speed": 1.0, "seed": 0}
    return run(speaking_graph("mouth", speaker()), "speak", given).outputs["speech"]


def test_it_hears_answers_and_speaks_what_the_speaker_would_say_of_the_whole_answer(question: FloatArray) -> None:
    asked: list[str] = []

    def script(heard: str) -> Sequence[str]:
        asked.append(heard)
        return in_tokens(ANSWER)

    with Runtime(assistant(script)) as runtime:
        events = list(runtime.stream("converse", values(question), emit=("transcript", "deltas", "audio")))
    assert [words(text) for text in asked] == [words(QUESTION)]
    assert isinstance(events[-1], Done)
    outputs = events[-1].result.outputs
    by_name: dict[str, list[Any]] = {"transcript": [], "deltas": [], "audio": []}
    for event in events[:-1]:
        assert isinstance(event, Value)
        by_name[event.name].append(event.value)
    assert by_name["transcript"] == [outputs["transcript"]] == asked
    assert "".join(delta.text for step in by_name["deltas"] for delta in step) == ANSWER
    assert tuple(by_name["deltas"]) == outputs["answers"]
    assert torch.equal(torch.cat(by_name["audio"], 1), outputs["speech"])
    assert torch.equal(outputs["speech"], plain_speech(ANSWER))
    assert all(piece.shape[1] for piece in by_name["audio"])


@pytest.mark.parametrize("seed", range(5))
def test_the_tokens_that_an_answer_is_cut_in_do_not_matter(question: FloatArray, seed: int) -> None:
    graph = assistant(lambda heard: in_tokens(ANSWER, seed))
    rng = random.Random(seed)
    made = run(graph, "converse", values(question), choose=rng.choice)
    assert torch.equal(made.outputs["speech"], plain_speech(ANSWER))


def test_it_speaks_before_the_answer_is_written(question: FloatArray) -> None:
    """The model goes on behind its first sentence only when the first piece of audio has been heard."""
    spoke = threading.Event()
    parts = ["One moment.", " And", " now", " the", " rest."]

    def pause(at: int) -> None:
        if at == 3:  # the sentence is known when the next one begins
            assert spoke.wait(10), "nothing was said while the model wrote"

    graph = assistant(lambda heard: parts, scripted_language(pause=pause))
    groups = {"thinking": {"threads": 1}, "rest": {"threads": 1}}
    placement = Placement.from_config({"groups": groups, "nodes": {"*/language.*": "thinking", "*": "rest"}}, graph)
    with Runtime(graph, placement=placement) as runtime:
        names = []
        for event in runtime.stream("converse", values(question), emit=("deltas", "audio")):
            if isinstance(event, Value):
                names.append(event.name)
                if event.name == "audio":
                    spoke.set()
    assert names.index("audio") < len(names) - 1 - names[::-1].index("deltas")


def test_on_one_worker_the_voice_does_not_fall_behind_the_model(question: FloatArray) -> None:
    """Gathering, imagining and rendering each wait for at most one step of the model, however long it has written."""
    first = list("This is a first sentence that is written letter by letter.")
    with Runtime(assistant(lambda heard: [*first, *list(" And" + " more" * 20), ""])) as runtime:
        events = list(runtime.stream("converse", values(question), emit=("deltas", "audio")))
    names = [event.name for event in events if isinstance(event, Value)]
    known = len(first) + 2  # the next sentence has begun
    assert known <= names.index("audio") <= known + 5


@pytest.mark.parametrize("audio", [silence(1.0), silence(0.001)], ids=["silence", "blink"])
def test_where_nothing_was_said_nothing_is_answered(audio: FloatArray) -> None:
    def script(heard: str) -> Sequence[str]:
        raise AssertionError("nobody asked")

    with Runtime(assistant(script)) as runtime:
        events = list(runtime.stream("converse", values(audio), emit=("transcript", "deltas", "audio")))
    assert isinstance(events[-1], Done)
    outputs = events[-1].result.outputs
    assert [event.value for event in events if isinstance(event, Value)] == [""]
    assert outputs["speech"].shape == (1, 0)
    assert (outputs["transcript"], outputs["segments"], outputs["answers"]) == ("", (), ())


@pytest.mark.parametrize("parts", [[""], ["🙂", "...", ""], ["```\n", "code.\n", ""]])
def test_an_answer_without_words_is_no_audio(question: FloatArray, parts: list[str]) -> None:
    made = run(assistant(lambda heard: parts), "converse", values(question)).outputs
    assert made["speech"].shape == (1, 0)
    assert len(made["answers"]) == len(parts)


def test_of_several_answers_the_first_is_spoken(question: FloatArray) -> None:
    graph = assistant(lambda heard: in_tokens(ANSWER), scripted_language(aside="Never said."))
    assert torch.equal(run(graph, "converse", values(question)).outputs["speech"], plain_speech(ANSWER))


def test_words_that_a_model_leaves_without_an_end_are_not_lost_in_silence(question: FloatArray) -> None:
    graph = assistant(lambda heard: ["Done.", " Half a"], scripted_language(finishes=False))
    with Runtime(graph) as runtime, pytest.raises(ComponentError, match="' Half a' is unsaid"):
        runtime.submit("converse", values(question)).result()


def test_who_stops_listening_stops_the_model_and_the_voice(question: FloatArray) -> None:
    tickets, steps = threading.Semaphore(3), []

    def pause(at: int) -> None:
        assert tickets.acquire(timeout=10)
        steps.append(at)

    graph = assistant(lambda heard: in_tokens("word " * 500), scripted_language(pause=pause))
    before = Held.open
    with Runtime(graph) as runtime:
        stream = runtime.stream("converse", values(question), emit=("deltas",))
        for _ in range(3):
            assert isinstance(next(stream), Value)
        assert Held.open == before + 1
        stream.close()
        tickets.release(10_000)
        runtime.submit("activity", {"audio": torch.from_numpy(question)[None]}).result(timeout=10)
    assert len(steps) <= 4
    deadline = time.monotonic() + 5
    while Held.open != before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert Held.open == before  # what the request held is given back


def test_a_model_without_room_is_told_and_others_go_on(question: FloatArray) -> None:
    full = [True]

    def script(heard: str) -> Sequence[str]:
        if full.pop() if full else False:
            raise OverloadedError("the pool is full", retry_after_s=1.0)
        return ["Yes."]

    with Runtime(assistant(script)) as runtime:
        with pytest.raises(OverloadedError, match="pool is full"):
            runtime.submit("converse", values(question)).result()
        assert runtime.submit("converse", values(question)).result().outputs["speech"].shape[1] > 0


def test_several_conversations_at_once_do_not_mix(question: FloatArray) -> None:
    answers = ["Yes.", "No, not at all. Why?", ANSWER]
    scripts = iter(answers)

    with Runtime(assistant(lambda heard: in_tokens(next(scripts)))) as runtime:
        requests = [runtime.submit("converse", values(question)) for _ in answers]
        results = [request.result().outputs for request in requests]
    texts = {"".join(d.text for step in r["answers"] for d in step): r["speech"] for r in results}
    assert set(texts) == set(answers)
    assert all(torch.equal(speech, plain_speech(text)) for text, speech in texts.items())


def test_manners_come_first_where_the_system_has_said_nothing() -> None:
    told = Dialogue((ChatMessage("system", "Be brief."), ChatMessage("user", "Hi")), TextOptions()).with_user("And?")
    assert [m.content for m in told] == ["Be brief.", "Hi", "And?"]
    untold = Dialogue((), TextOptions()).with_user("Hi")
    assert [(m.role, m.content) for m in untold] == [("system", MANNERS), ("user", "Hi")]


def test_what_silence_gives_must_be_known_for_each_output() -> None:
    language = scripted_language()
    with pytest.raises(WalkError, match="silent has"):
        assistant_graph(
            "assistant",
            hearing=hearing_graph("ears", activity(), transcriber()),
            language=language,
            generate=language.walks["scripted"],
            ask=AskChat(script_begin(lambda heard: ["Yes."]), ("script",)),
            speaking=speaking_graph("mouth", speaker()),
            speaker=speaker(),
            silent={},
        )


def test_the_walks_of_the_parts_are_there_under_their_own_names(question: FloatArray) -> None:
    graph = assistant()
    assert {"activity", "transcribe", "scripted", "speak", "converse"} <= set(graph.walks)
    given = {"text": "Yes.", "voice": "", "speed": 1.0, "seed": 0}
    assert np.array_equal(run(graph, "speak", given).outputs["speech"], plain_speech("Yes."))
