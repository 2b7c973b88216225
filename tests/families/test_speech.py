"""Speech by name: what is spoken is understood, faces and abilities agree, and mistakes are told at the door."""

from __future__ import annotations

import concurrent.futures
import random
from pathlib import Path
from typing import Any

import jiwer
import numpy as np
import pytest
import torch
from speech_parts import SENTENCES, noise, silence, spoken, words

from mstar_plan.errors import ConfigError, InvalidInputError, LimitExceededError, WeightsError
from mstar_plan.families.abilities import Segment
from mstar_plan.families.servable import FamilyConfig, Servable
from mstar_plan.families.speech import LONGEST_TEXT, load_hibari, load_silero, load_whisper_tiny
from mstar_plan.models.speech.hearing import MAX_SAMPLES
from mstar_plan.models.speech.resample import resample
from mstar_plan.models.speech.transcriber import LONGEST_PROMPT
from mstar_plan.runtime.request import Done, Value
from mstar_plan.runtime.runtime import Runtime

LOADERS = {"hibari": load_hibari, "whisper_tiny": load_whisper_tiny, "silero": load_silero}


@pytest.fixture(scope="module")
def families() -> dict[str, Servable]:
    return {name: load(name, FamilyConfig()) for name, load in LOADERS.items()}


@pytest.fixture(scope="module")
def hibari(families: dict[str, Servable]) -> Servable:
    return families["hibari"]


@pytest.fixture(scope="module")
def whisper(families: dict[str, Servable]) -> Servable:
    return families["whisper_tiny"]


@pytest.mark.parametrize("name", LOADERS)
def test_a_family_says_what_it_is(families: dict[str, Servable], name: str) -> None:
    family = families[name]
    assert family.name == family.graph.name == name
    assert family.description
    assert family.source
    assert family.licence in ("MIT", "Apache-2.0")
    assert set(family.faces) <= set(family.graph.walks)
    abilities = {"hibari": ("speech",), "whisper_tiny": ("transcription",), "silero": ()}
    assert family.abilities == abilities[name]


@pytest.mark.parametrize(
    ("name", "walk"), [("hibari", "speak"), ("whisper_tiny", "transcribe"), ("whisper_tiny", "activity"),
                       ("silero", "activity")]
)  # fmt: skip
def test_a_face_runs_on_its_samples(families: dict[str, Servable], name: str, walk: str) -> None:
    family = families[name]
    face = family.faces[walk]
    values = face.prepare(face.check({name: port.sample() for name, port in face.inputs.items()}))
    with Runtime(family.graph) as runtime:
        events = list(runtime.stream(walk, values, emit=tuple(face.streams)))
    assert isinstance(events[-1], Done)
    assert events[-1].result.outputs.keys() == face.outputs.keys()
    kinds = {"tensor": torch.Tensor, "text": str, "flag": bool, "json": list}
    for wire, value in events[-1].result.outputs.items():
        assert isinstance(face.present(wire, value), kinds[face.outputs[wire].kind])
    assert {event.name for event in events if isinstance(event, Value)} <= set(face.streams)


def test_what_is_spoken_is_understood(hibari: Servable, whisper: Servable) -> None:
    """Word error rate of the voice through the ears, with several requests at once: at most 0.1."""
    assert hibari.speech is not None
    assert whisper.transcription is not None
    texts = [" ".join(pair) for pair in zip(SENTENCES[::2], SENTENCES[1::2], strict=True)]
    calls = [hibari.speech.speak(text) for text in texts]
    with Runtime({"mouth": hibari.graph, "ears": whisper.graph}) as runtime:
        requests = [runtime.submit(call.walk, call.values, graph="mouth") for call in calls]
        speech = [request.result().outputs["speech"][0].numpy() for request in requests]
        heard = []
        for audio in speech:
            assert np.isfinite(audio).all()
            assert 0.05 < np.abs(audio).max() <= 1
            call = whisper.transcription.transcribe(resample(audio, hibari.speech.sample_rate, 16_000))
            heard.append(runtime.submit(call.walk, call.values, graph="ears"))
        transcripts = [request.result().outputs["transcript"] for request in heard]
    rate = jiwer.wer([words(text) for text in texts], [words(text) for text in transcripts])
    assert rate <= 0.1, transcripts


def test_numbers_and_layout_are_read_out(hibari: Servable, whisper: Servable) -> None:
    assert hibari.speech is not None
    assert whisper.transcription is not None
    text = "# The plan\n- **First**, call [Anna](https://a.example).\n```\nignored()\n```\nDr. Brown has 3 dogs."
    call = hibari.speech.speak(text)
    with Runtime({"mouth": hibari.graph, "ears": whisper.graph}) as runtime:
        audio = runtime.submit(call.walk, call.values, graph="mouth").result().outputs["speech"][0].numpy()
        call = whisper.transcription.transcribe(resample(audio, 24_000, 16_000))
        heard = words(runtime.submit(call.walk, call.values, graph="ears").result().outputs["transcript"])
    assert "first call" in heard
    assert "brown has" in heard
    assert "dogs" in heard
    assert not {"ignored", "hash", "asterisk", "example"} & set(heard.split())


@pytest.mark.parametrize("audio", [silence(2), noise(2)], ids=["silence", "noise"])
def test_silence_is_transcribed_to_nothing(whisper: Servable, audio: np.ndarray) -> None:
    assert whisper.transcription is not None
    call = whisper.transcription.transcribe(audio)
    with Runtime(whisper.graph) as runtime:
        events = list(runtime.stream(call.walk, call.values, emit=call.emit))
    [done] = events
    assert isinstance(done, Done)
    assert done.result.outputs == {"transcript": "", "segments": ()}


def test_segments_come_one_after_the_other(whisper: Servable) -> None:
    assert whisper.transcription is not None
    audio = np.concatenate([spoken(SENTENCES[0]), silence(4.0), spoken(SENTENCES[2])])
    call = whisper.transcription.transcribe(audio)
    with Runtime(whisper.graph) as runtime:
        events = list(runtime.stream(call.walk, call.values, emit=call.emit))
    told = [event.value for event in events if isinstance(event, Value)]
    assert len(told) >= 2
    assert all(isinstance(segment, Segment) for segment in told)
    assert isinstance(events[-1], Done)
    assert events[-1].result.outputs["segments"] == tuple(told)


def test_audio_of_another_rate_is_resampled_behind_the_face(families: dict[str, Servable]) -> None:
    face = families["silero"].faces["activity"]
    audio = torch.from_numpy(resample(np.concatenate([silence(1), spoken("Good morning.")]), 16_000, 48_000))[None]
    with Runtime(families["silero"].graph) as runtime:
        values = face.prepare(face.check({"audio": audio, "sample_rate": 48_000}))
        spans = face.present("spans", runtime.submit("activity", values).result().outputs["spans"])
    assert 0.9 < spans[0]["start_s"] < 1.6
    with pytest.raises(InvalidInputError, match="rate"):
        face.prepare(face.check({"audio": audio, "sample_rate": 10}))


def test_many_at_once_get_what_one_alone_gets(hibari: Servable) -> None:
    assert hibari.speech is not None
    texts = [" ".join(random.Random(seed).sample(["Yes.", "No!", "Why not?", "It is late."], 3)) for seed in range(8)]
    with Runtime(hibari.graph) as runtime:
        calls = [hibari.speech.speak(text) for text in texts]
        alone = [runtime.submit(call.walk, call.values).result().outputs["speech"] for call in calls]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            requests = list(pool.map(lambda call: runtime.submit(call.walk, call.values), calls))
        together = [request.result().outputs["speech"] for request in requests]
    assert all(torch.equal(a, b) for a, b in zip(alone, together, strict=True))


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"text": ""}, InvalidInputError, "nothing to say"),
        ({"text": " \n🙂 ``` "}, InvalidInputError, "nothing to say"),
        ({"text": "a" * (LONGEST_TEXT + 1)}, LimitExceededError, "8193 characters"),
        ({"text": "Hi.", "voice": "nobody"}, InvalidInputError, "no voice 'nobody'"),
        ({"text": "Hi.", "speed": 0.1}, InvalidInputError, r"speed is 0\.1"),
        ({"text": "Hi.", "speed": float("nan")}, InvalidInputError, "speed is nan"),
    ],
)
def test_mistakes_of_who_wants_speech_are_told_at_the_door(
    hibari: Servable, arguments: dict[str, Any], error: type[Exception], match: str
) -> None:
    assert hibari.speech is not None
    with pytest.raises(error, match=match):
        hibari.speech.speak(**arguments)


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"audio": np.zeros((2, 9), np.float32)}, InvalidInputError, "dimensions"),
        ({"audio": np.zeros(0, np.float32)}, InvalidInputError, "no sample"),
        ({"audio": np.full(9, np.inf, np.float32)}, InvalidInputError, "NaN or infinite"),
        ({"audio": np.zeros(MAX_SAMPLES + 1, np.float32)}, LimitExceededError, "at most 1800 s"),
        ({"audio": np.zeros(9, np.float32), "language": "fr"}, InvalidInputError, "language is 'fr'"),
        ({"audio": np.zeros(9, np.float32), "prompt": "x" * (LONGEST_PROMPT + 1)}, LimitExceededError, "prompt has"),
    ],
)
def test_mistakes_of_who_wants_a_transcript_are_told_at_the_door(
    whisper: Servable, arguments: dict[str, Any], error: type[Exception], match: str
) -> None:
    assert whisper.transcription is not None
    with pytest.raises(error, match=match):
        whisper.transcription.transcribe(**arguments)


@pytest.mark.parametrize("name", LOADERS)
def test_weights_that_are_not_there_are_told(name: str, tmp_path: Path) -> None:
    with pytest.raises(WeightsError):
        LOADERS[name](name, FamilyConfig(weights=tmp_path / "absent"))


@pytest.mark.parametrize("name", ["hibari", "silero"])
def test_another_device_is_refused_where_it_would_not_be_used(name: str) -> None:
    with pytest.raises(ConfigError, match="runs on the CPU"):
        LOADERS[name](name, FamilyConfig(device="cuda:1"))
