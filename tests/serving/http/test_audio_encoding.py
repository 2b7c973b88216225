"""Audio as it goes out: the same file whatever pieces it is made of, and every sample of it."""

from __future__ import annotations

import io
import struct

import av
import numpy as np
import pytest
import soundfile as sf

from mstar_plan.errors import InvalidInputError
from mstar_plan.serving.http.audio_encoding import FORMATS, Resampler, make_encoder, media_type_of, pcm16


def sound(rate: int, seconds: float = 1.0) -> np.ndarray:
    return (0.5 * np.sin(2 * np.pi * 440 * np.arange(int(rate * seconds)) / rate)).astype(np.float32)


def encoded(form: str, samples: np.ndarray, rate: int, piece: int) -> bytes:
    encoder = make_encoder(form, rate)
    parts = [encoder.add(samples[at : at + piece]) for at in range(0, len(samples), piece)]
    return b"".join([*parts, encoder.end()])


def decoded(data: bytes) -> tuple[int, np.ndarray]:
    with av.open(io.BytesIO(data)) as container:
        frames = list(container.decode(audio=0))
    parts = [np.asarray(f.to_ndarray(), np.float64).reshape(-1) for f in frames]
    scale = 32768.0 if frames[0].format.name.startswith("s16") else 1.0
    return frames[0].sample_rate, np.concatenate(parts) / scale


@pytest.mark.parametrize("rate", [8000, 16000, 22050, 24000, 44100, 48000, 17000])
@pytest.mark.parametrize("form", ["mp3", "opus", "aac", "flac"])
def test_nothing_is_lost_at_any_rate(form: str, rate: int) -> None:
    got_rate, got = decoded(encoded(form, sound(rate), rate, 997))
    assert len(got) / got_rate == pytest.approx(1.0, abs=0.05 + 1200 / got_rate)  # codecs pad by a frame
    part = got[got_rate // 4 : got_rate // 4 + got_rate // 2]
    spectrum = np.abs(np.fft.rfft(part))
    assert spectrum.argmax() * 2 == pytest.approx(440, abs=2)
    assert 2 * spectrum.max() / len(part) == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("form", FORMATS)
def test_the_pieces_do_not_matter(form: str) -> None:
    samples = sound(22050, 0.5)
    whole = encoded(form, samples, 22050, len(samples))
    for piece in (1, 100, 4001) if form in ("wav", "flac") else (4001, 5000):
        got = encoded(form, samples, 22050, piece)
        if form == "pcm":
            np.testing.assert_allclose(np.frombuffer(got, "<i2"), np.frombuffer(whole, "<i2"), atol=1)
        elif form == "opus":  # its stream has a number that is drawn
            np.testing.assert_allclose(decoded(got)[1], decoded(whole)[1], atol=1e-3)
        else:
            assert got == whole


def test_a_wav_of_unknown_length_is_read_to_its_end() -> None:
    data = encoded("wav", sound(16000), 16000, 700)
    assert data[:4] == b"RIFF"
    assert struct.unpack("<I", data[4:8]) == struct.unpack("<I", data[40:44]) == (0xFFFFFFFF,)
    samples, rate = sf.read(io.BytesIO(data), dtype="int16")
    assert rate == 16000
    np.testing.assert_array_equal(samples, np.frombuffer(pcm16(sound(16000)), "<i2"))


def test_silence_and_nothing_make_files_too() -> None:
    for form in FORMATS:
        encoder = make_encoder(form, 16000)
        assert isinstance(encoder.add(np.zeros(0, np.float32)), bytes)
        assert isinstance(encoder.end(), bytes)
    assert len(encoded("wav", np.zeros(0, np.float32), 16000, 1)) == 44


def test_too_loud_is_clipped() -> None:
    assert np.frombuffer(pcm16(np.array([2.0, -2.0, 0.0], np.float32)), "<i2").tolist() == [32767, -32767, 0]


@pytest.mark.parametrize(("source", "target"), [(16000, 24000), (44100, 16000), (22050, 48000)])
def test_resampling_in_pieces_is_resampling(source: int, target: int) -> None:
    samples = sound(source)
    whole, pieces = Resampler(source, target), Resampler(source, target)
    want = np.concatenate([whole.add(samples), whole.end()])
    got = np.concatenate([*(pieces.add(samples[at : at + 333]) for at in range(0, len(samples), 333)), pieces.end()])
    assert len(got) == pytest.approx(target, abs=2)
    np.testing.assert_allclose(got, want, atol=1e-5)
    ideal = 0.5 * np.sin(2 * np.pi * 440 * np.arange(target) / target)
    np.testing.assert_allclose(got[200:-200], ideal[200 : len(got) - 200], atol=0.01)


def test_formats_that_are_none() -> None:
    with pytest.raises(InvalidInputError, match="midi"):
        make_encoder("midi", 16000)
    assert media_type_of("pcm") == "audio/pcm;rate=24000;channels=1"
    assert len({media_type_of(form) for form in FORMATS}) == len(FORMATS)
