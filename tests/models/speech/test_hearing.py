"""The walks that hear: speech is written down with its times, and silence is no speech."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from speech_parts import activity, noise, silence, spoken, transcriber, words
from walk_driver import run

from mstar_plan.errors import InvalidInputError, LimitExceededError
from mstar_plan.models.speech.hearing import MAX_SAMPLES, activity_graph, hearing_graph, one_row
from mstar_plan.models.speech.transcriber import Passage
from mstar_plan.runtime.request import Done, Value
from mstar_plan.runtime.runtime import Runtime
from mstar_plan.types import FloatArray
from mstar_plan.walks.graph import Graph


@pytest.fixture(scope="module")
def graph() -> Graph:
    return hearing_graph("ears", activity(), transcriber())


def values(audio: FloatArray) -> dict[str, Any]:
    return {"audio": torch.from_numpy(audio)[None], "language": "", "prompt": ""}


def test_two_sentences_far_apart_are_heard_with_their_times(graph: Graph) -> None:
    first, second = spoken("What is the capital of France?"), spoken("Please close the door.")
    audio = np.concatenate([silence(1.0), first, silence(5.0), second, silence(1.0)])
    with Runtime(graph) as runtime:
        events = list(runtime.stream("transcribe", values(audio), emit=("segment",)))
    told = [event.value for event in events if isinstance(event, Value)]
    assert isinstance(events[-1], Done)
    outputs = events[-1].result.outputs
    assert tuple(told) == outputs["segments"]
    assert words(outputs["transcript"]) == "what is the capital of france please close the door"
    begins = 1.0 + len(first) / 16_000 + 5.0
    assert all(isinstance(part, Passage) for part in told)
    assert told[0].start_s == pytest.approx(1.2, abs=0.3)
    assert told[-1].start_s == pytest.approx(begins + 0.2, abs=0.3)
    assert all(a.end_s <= b.start_s + 0.05 for a, b in pairwise(told))
    assert events[-1].result.loop_ends["windows"].iterations == 2


@pytest.mark.parametrize("audio", [silence(3.0), noise(3.0), silence(0.01)], ids=["silence", "noise", "blink"])
def test_where_nothing_is_said_nothing_is_heard_and_nobody_listens(
    graph: Graph, audio: FloatArray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transcriber(), "hear", lambda *_: pytest.fail("it listened to silence"))
    assert run(graph, "transcribe", values(audio)).outputs == {"transcript": "", "segments": ()}


def test_speech_that_the_model_makes_nothing_of_gives_an_empty_transcript(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transcriber(), "hear", lambda *_: ())
    assert run(graph, "transcribe", values(spoken("Hello there."))).outputs == {"transcript": "", "segments": ()}


def test_a_prompt_is_for_the_first_window(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    prompts: list[str] = []
    monkeypatch.setattr(transcriber(), "hear", lambda audio, language, prompt: prompts.append(prompt) or ())
    audio = np.concatenate([spoken("Hello there."), silence(5.0), spoken("Hello there.")])
    run(graph, "transcribe", {**values(audio), "prompt": "Names: Ada"})
    assert prompts == ["Names: Ada", ""]


def test_activity_finds_speech_between_silences() -> None:
    first = spoken("The weather is going to be cold and windy.")
    audio = np.concatenate([silence(1.0), first, silence(1.0)])
    outputs = run(activity_graph("silero", activity()), "activity", {"audio": torch.from_numpy(audio)[None]}).outputs
    assert outputs["heard"] is True
    start, stop = outputs["spans"][0][0] / 16_000, outputs["spans"][-1][1] / 16_000
    loud = np.flatnonzero(np.abs(audio) > 0.02) / 16_000
    assert start == pytest.approx(loud[0], abs=0.2)
    assert stop == pytest.approx(loud[-1], abs=0.3)
    silent = run(activity_graph("s", activity()), "activity", {"audio": torch.zeros(1, 16_000)}).outputs
    assert silent == {"spans": (), "heard": False}


def test_audio_of_another_kind_is_refused() -> None:
    for wrong in (torch.zeros(16), torch.zeros(2, 16), torch.zeros(1, 16, dtype=torch.float64)):
        with pytest.raises(InvalidInputError, match=r"send float32 \[1, samples\]"):
            one_row(wrong)
    with pytest.raises(InvalidInputError, match="NaN"):
        one_row(torch.full((1, 4), torch.nan))
    with pytest.raises(LimitExceededError, match="at most 1800 s"):
        one_row(torch.zeros(1, 1).expand(1, MAX_SAMPLES + 1))
