"""Audio files: formats of two libraries, channels and rates, bounds, and damage."""

from __future__ import annotations

import io
import random
from typing import Any

import av
import numpy as np
import pytest
import soundfile as sf

from mstar_plan.errors import InvalidInputError, LimitExceededError
from mstar_plan.serving.http.audio_files import read_audio

RATE = 16000


def sound(rate: int, seconds: float = 1.0) -> np.ndarray:
    return 0.5 * np.sin(2 * np.pi * 440 * np.arange(int(rate * seconds)) / rate)


def by_sndfile(form: str, rate: int = 44100, channels: int = 1, **options: Any) -> bytes:
    file = io.BytesIO()
    sf.write(file, np.stack([sound(rate)] * channels, 1), rate, format=form, **options)
    return file.getvalue()


def by_ffmpeg(container: str, codec: str, rate: int = 48000) -> bytes:
    file = io.BytesIO()
    with av.open(file, "w", format=container) as out:
        stream: Any = out.add_stream(codec, rate=rate, layout="mono")
        fifo: Any = av.AudioFifo()
        frame = av.AudioFrame.from_ndarray(sound(rate)[None].astype(np.float32), format="flt", layout="mono")
        frame.sample_rate = rate
        fifo.write(frame)
        while part := fifo.read(stream.codec_context.frame_size or 960, partial=True):
            out.mux(stream.encode(part))
        out.mux(stream.encode(None))
    return file.getvalue()


FILES = {
    "wav": lambda: by_sndfile("WAV"),
    "wav, float": lambda: by_sndfile("WAV", subtype="FLOAT"),
    "wav, six channels": lambda: by_sndfile("WAV", 8000, 6),
    "flac": lambda: by_sndfile("FLAC", 22050),
    "ogg": lambda: by_sndfile("OGG", subtype="VORBIS"),
    "opus": lambda: by_sndfile("OGG", 48000, subtype="OPUS"),
    "mp3": lambda: by_sndfile("MP3", 44100, 2),
    "webm": lambda: by_ffmpeg("webm", "libopus"),
    "m4a": lambda: by_ffmpeg("mp4", "aac"),
    "aac": lambda: by_ffmpeg("adts", "aac"),
}


@pytest.mark.parametrize("name", FILES)
def test_each_format_becomes_one_channel_of_the_rate_that_is_wanted(name: str) -> None:
    got = read_audio(io.BytesIO(FILES[name]()), RATE, 10)
    assert (got.dtype, got.ndim) == (np.float32, 1)
    assert len(got) / RATE == pytest.approx(1.0, abs=0.1)
    spectrum = np.abs(np.fft.rfft(got[2000:14000]))
    assert spectrum.argmax() * RATE / 12000 == pytest.approx(440, abs=3)
    assert 2 * spectrum.max() / 12000 == pytest.approx(0.5, abs=0.03)


def test_what_needs_no_change_keeps_every_bit() -> None:
    samples = np.random.default_rng(0).uniform(-1, 1, 5000).astype(np.float32)
    file = io.BytesIO()
    sf.write(file, samples, RATE, format="WAV", subtype="FLOAT")
    file.seek(0)
    np.testing.assert_array_equal(read_audio(file, RATE, 10), samples)


@pytest.mark.parametrize("name", FILES)
def test_too_long_audio_is_refused(name: str) -> None:
    with pytest.raises(LimitExceededError, match=r"longer than 0\.5 s"):
        read_audio(io.BytesIO(FILES[name]()), RATE, 0.5)


def test_rates_and_channels_that_are_out_of_range() -> None:
    with pytest.raises(InvalidInputError, match="samples a second"):
        read_audio(io.BytesIO(by_sndfile("WAV", 1000)), RATE, 10)
    with pytest.raises(LimitExceededError, match="channels"):
        read_audio(io.BytesIO(by_sndfile("WAV", 8000, 20)), RATE, 10)


def test_samples_that_are_not_finite() -> None:
    file = io.BytesIO()
    sf.write(file, np.array([0.0, np.nan, 0.5]), RATE, format="WAV", subtype="FLOAT")
    file.seek(0)
    with pytest.raises(InvalidInputError, match="NaN"):
        read_audio(file, RATE, 10)


@pytest.mark.parametrize(
    "data",
    [
        b"", b"x", b"RIFF", b"RIFF\0\0\0\0WAVE", b"OggS" + b"\0" * 60, b"ID3" + b"\xff" * 100, b"fLaC" * 20,
        b"\x1aE\xdf\xa3" + b"\0" * 60, b"\0\0\0\x20ftypisom" + b"\0" * 60, b"\xff\xf1" + b"\0" * 60,
        b"#EXTM3U\nhttp://127.0.0.1:1/x.mp3\n", b"ffconcat version 1.0\nfile /etc/passwd\n", b"<?xml version='1.0'?>",
        b"\xff\xd8\xff\xe0" + b"\0" * 60, by_sndfile("WAV")[:44],
    ],
)  # fmt: skip
def test_what_is_no_audio(data: bytes) -> None:
    with pytest.raises(InvalidInputError):
        read_audio(io.BytesIO(data), RATE, 10)


@pytest.mark.parametrize("name", FILES)
def test_damaged_files_raise_nothing_else(name: str) -> None:
    whole, chosen = FILES[name](), random.Random(0)
    for _ in range(15):
        data = bytearray(whole)
        for _ in range(chosen.randint(1, 40)):
            data[chosen.randrange(min(len(data), 2000))] = chosen.randrange(256)
        cut = bytes(data[: chosen.randrange(1, len(data))])
        try:
            got = read_audio(io.BytesIO(cut), RATE, 10)
        except (InvalidInputError, LimitExceededError):
            continue
        assert np.isfinite(got).all()
