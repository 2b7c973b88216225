"""Transcriptions: OpenAI's own client, unmodified, with files that other libraries wrote."""

from __future__ import annotations

import io
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest
import soundfile as sf
from http_world import RATE, World, http_world
from openai import OpenAI

from mstar_plan.families.abilities import Segment
from mstar_plan.serving.http.config import HttpLimits
from mstar_plan.serving.http.openai_transcriptions import srt, vtt

TEXT = "<first> half: still <second> half: loud"


def recording(form: str = "WAV", rate: int = 44100, channels: int = 2, **more: Any) -> bytes:
    """A second of silence, and a second of sound."""
    at = np.arange(2 * rate) / rate
    samples = np.where(at < 1, 0.0, 0.5 * np.sin(2 * np.pi * 300 * at))
    file = io.BytesIO()
    sf.write(file, np.stack([samples] * channels, 1), rate, format=form, **more)
    return file.getvalue()


@pytest.fixture
def client(world: World) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{world.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def test_plain_text_and_what_the_model_was_asked(client: OpenAI, world: World) -> None:
    got = client.audio.transcriptions.create(
        model="listener", file=("a.wav", recording()), language="de", prompt="Wörter", temperature=0
    )
    assert got.text == TEXT
    audio, language, prompt = world.log.asked[-1]
    assert (audio.dtype, audio.ndim, language, prompt) == (np.float32, 1, "de", "Wörter")
    assert len(audio) == pytest.approx(2 * RATE, abs=20)


def test_each_format(client: OpenAI) -> None:
    file = ("a.flac", recording("FLAC"))
    assert client.audio.transcriptions.create(model="listener", file=file, response_format="text") == f"{TEXT}\n"
    verbose = client.audio.transcriptions.create(
        model="listener",
        file=file,
        response_format="verbose_json",
        language="en",
        timestamp_granularities=["segment"],
    )
    assert (verbose.text, verbose.language) == (TEXT, "en")
    assert float(verbose.duration) == pytest.approx(2.0, abs=0.01)
    assert verbose.segments is not None
    assert [s.text for s in verbose.segments] == [" <first> half: still", " <second> half: loud"]
    assert verbose.segments[1].start == pytest.approx(1.0, abs=0.01)
    subtitles = client.audio.transcriptions.create(model="listener", file=file, response_format="srt")
    assert str(subtitles).startswith("1\n00:00:00,000 --> 00:00:01,000\n<first> half: still\n\n2\n")
    web = client.audio.transcriptions.create(model="listener", file=file, response_format="vtt")
    assert str(web).startswith("WEBVTT\n\n00:00:00.000 --> 00:00:01.000\n&lt;first&gt; half: still\n\n")


def test_a_stream_of_segments(client: OpenAI) -> None:
    stream = client.audio.transcriptions.create(model="listener", file=("a.wav", recording()), stream=True)
    events = list(stream)
    assert [e.type for e in events] == ["transcript.text.delta", "transcript.text.delta", "transcript.text.done"]
    assert "".join(e.delta for e in events[:2]).strip() == TEXT  # type: ignore[union-attr]
    assert events[2].text == TEXT  # type: ignore[union-attr]


def test_curl_sends_a_file(world: World, tmp_path: Path) -> None:
    path = tmp_path / "a.ogg"
    path.write_bytes(recording("OGG", subtype="VORBIS"))
    command = ["curl", "-sS", f"{world.url}/v1/audio/transcriptions", "-F", f"file=@{path}", "-F", "model=listener"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout == f'{{"text":"{TEXT}"}}'


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"file": b""}, "file"),
        ({"file": b"not audio at all, but long enough to look at"}, "file"),
        ({"file": recording()[:30]}, "file"),
        ({"file": b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n"}, "file"),
        ({"language": "xx"}, "language"),
        ({"response_format": "xml"}, "response_format"),
        ({"response_format": "srt", "stream": "true"}, "response_format"),
        ({"temperature": "0.5"}, "temperature"),
        ({"timestamp_granularities[]": "word"}, "timestamp_granularities[]"),
        ({"frob": "1"}, "frob"),
        ({"stream": "maybe"}, "stream"),
        ({"model": "scribe"}, "model"),
        ({"deadline_s": "nan"}, "deadline_s"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(http: httpx.Client, change: dict[str, Any], param: str) -> None:
    fields = {"model": "listener", "file": recording(), **change}
    file = fields.pop("file")
    got = http.post("/v1/audio/transcriptions", data=fields, files={"file": ("a.wav", file)})
    assert (got.status_code, got.json()["error"]["param"]) == (400, param), got.text


def test_forms_that_are_none(http: httpx.Client) -> None:
    for options in (
        {"data": {"model": "listener"}},
        {"json": {"model": "listener"}},
        {"content": b"--x\r\n", "headers": {"content-type": "multipart/form-data; boundary=x"}},
        {"content": b"junk", "headers": {"content-type": "multipart/form-data"}},
        {"data": {"model": "listener", "file": "text"}},
    ):
        got = http.post("/v1/audio/transcriptions", **options)  # type: ignore[arg-type]
        assert got.status_code == 400, got.text


def test_a_recording_that_is_too_long() -> None:
    with http_world(HttpLimits(audio_s=1.5)) as world, OpenAI(base_url=f"{world.url}/v1", api_key="x") as client:
        with pytest.raises(openai.BadRequestError, match=r"longer than 1\.5 s"):
            client.audio.transcriptions.create(model="listener", file=("a.wav", recording()))
        assert world.log.asked == []


def test_subtitles_keep_their_form() -> None:
    segments = [Segment(0.0, 1.2345, " a\n\nb "), Segment(3661.5, 3662.0, "c --> <d>")]
    assert srt(segments) == ("1\n00:00:00,000 --> 00:00:01,234\na b\n\n2\n01:01:01,500 --> 01:01:02,000\nc --> <d>\n")
    assert vtt(segments) == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:01.234\na b\n\n01:01:01.500 --> 01:01:02.000\nc --&gt; &lt;d&gt;\n"
    )
