"""Speech: OpenAI's own client, unmodified; the audio is read back by other libraries."""

from __future__ import annotations

import base64
import io
import json
import time
from collections.abc import Iterator
from typing import Any

import av
import httpx
import numpy as np
import openai
import pytest
import soundfile as sf
from http_world import PIECE, RATE, World, tone
from openai import OpenAI


@pytest.fixture
def client(world: World) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{world.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def test_wav_is_what_the_model_spoke(client: OpenAI) -> None:
    got = client.audio.speech.create(model="speaker", voice="high", input="one two three", response_format="wav")
    assert got.response.headers["content-type"] == "audio/wav"
    samples, rate = sf.read(io.BytesIO(got.content), dtype="float32")
    assert rate == RATE
    np.testing.assert_allclose(samples, np.tile(tone(880.0, 1.0), 3), atol=1e-4)


@pytest.mark.parametrize("form", ["mp3", "opus", "aac", "flac"])
def test_compressed_forms_are_whole(client: OpenAI, form: Any) -> None:
    got = client.audio.speech.create(model="speaker", voice="low", input="a b c d", response_format=form)
    with av.open(io.BytesIO(got.content)) as container:
        frames = list(container.decode(audio=0))
    rate = frames[0].sample_rate
    seconds = sum(frame.samples for frame in frames) / rate
    assert seconds == pytest.approx(4 * PIECE / RATE, abs=0.15)
    samples = np.concatenate([np.asarray(f.to_ndarray(), np.float64).reshape(-1) for f in frames])
    loudest = np.abs(np.fft.rfft(samples[: rate // 2])).argmax() * 2
    assert loudest == pytest.approx(220, abs=4)  # Hz: what the low voice speaks


def test_mp3_is_what_comes_if_nothing_is_said(client: OpenAI) -> None:
    got = client.audio.speech.create(model="speaker", voice="low", input="a")
    assert got.response.headers["content-type"] == "audio/mpeg"


def test_bare_samples_have_the_rate_that_clients_expect(client: OpenAI) -> None:
    got = client.audio.speech.create(model="speaker", voice="low", input="a b", response_format="pcm", speed=0.5)
    samples = np.frombuffer(got.content, "<i2")
    assert len(samples) / 24000 == pytest.approx(2 * 2 * PIECE / RATE, abs=0.01)
    assert np.abs(samples).max() == pytest.approx(0.5 * 32767, rel=0.02)


def test_audio_is_sent_as_it_is_made(client: OpenAI) -> None:
    began = time.monotonic()
    with client.audio.speech.with_streaming_response.create(
        model="speaker", voice="low", input="a pace=0.5 c", response_format="wav"
    ) as got:
        pieces = got.iter_bytes()
        first = next(pieces)
        first_s = time.monotonic() - began
        rest = b"".join(pieces)
    assert first[:4] == b"RIFF"
    assert first_s < 0.4 < time.monotonic() - began
    assert len(first) + len(rest) == 44 + 3 * 2 * PIECE


def test_server_sent_audio(http: httpx.Client) -> None:
    body = {"model": "speaker", "input": "a b", "response_format": "wav", "stream_format": "sse"}
    got = http.post("/v1/audio/speech", json=body)
    events = [json.loads(line[6:]) for line in got.text.splitlines() if line]
    assert [event["type"] for event in events[-2:]] == ["speech.audio.delta", "speech.audio.done"]
    audio = b"".join(base64.b64decode(event["audio"]) for event in events[:-1])
    assert len(audio) == 44 + 2 * 2 * PIECE


def test_a_failing_model(client: OpenAI) -> None:
    with pytest.raises(openai.InternalServerError, match="say"):
        client.audio.speech.create(model="speaker", voice="low", input="break")
    with pytest.raises(openai.APIConnectionError):  # cut off, so that nobody takes the half for the whole
        client.audio.speech.create(model="speaker", voice="low", input="a break", response_format="wav")


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"voice": "hihg"}, "voice"),
        ({"speed": 5}, "speed"),
        ({"speed": 0.1}, "speed"),
        ({"input": ""}, "input"),
        ({"input": "  \n"}, "input"),
        ({"input": "x" * 20000}, "input"),
        ({"response_format": "midi"}, "response_format"),
        ({"instructions": "sing"}, "instructions"),
        ({"model": "scribe"}, "model"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(http: httpx.Client, change: dict[str, Any], param: str) -> None:
    got = http.post("/v1/audio/speech", json={"model": "speaker", "input": "x", **change})
    assert (got.status_code, got.json()["error"]["param"]) == (400, param), got.text
