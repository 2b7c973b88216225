"""Audio as it goes out: WAV, bare samples, or compressed, piece by piece while it is made."""

from __future__ import annotations

import io
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import av
import numpy as np
import numpy.typing as npt

from mstar_plan.errors import InvalidInputError
from mstar_plan.types import FloatArray

PCM_RATE = 24000  # of bare samples, as OpenAI's route has it
OPUS_RATE = 48000
_UNKNOWN = 0xFFFFFFFF  # length in the header of a file whose end nobody knows yet


class AudioEncoder(Protocol):
    """Makes a file of audio that comes in pieces."""

    def add(self, samples: FloatArray) -> bytes:
        """More of the file, from [n] samples in [-1, 1]; may be empty."""
        ...

    def end(self) -> bytes:
        """The rest of the file."""
        ...


@dataclass(frozen=True)
class _Form:
    """A compressed form: content type, container and codec of ffmpeg, and the sample rate that it needs (0: any)."""

    media_type: str
    container: str
    codec: str
    rate: int = 0


_FORMS: Mapping[str, _Form] = {
    "mp3": _Form("audio/mpeg", "mp3", "libmp3lame"),
    "opus": _Form("audio/ogg", "ogg", "libopus", OPUS_RATE),
    "aac": _Form("audio/aac", "adts", "aac"),
    "flac": _Form("audio/flac", "flac", "flac"),
}
FORMATS = ("mp3", "opus", "aac", "flac", "wav", "pcm")
_MP3_RATES = (8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000)


def media_type_of(form: str) -> str:
    """Content type of a format of `FORMATS`."""
    if form == "wav":
        return "audio/wav"
    return f"audio/pcm;rate={PCM_RATE};channels=1" if form == "pcm" else _FORMS[form].media_type


def make_encoder(form: str, rate: int) -> AudioEncoder:
    """Returns an encoder of one channel.

    Args:
        form: One of `FORMATS`.
        rate: Sample rate of what comes, in Hz.

    Raises:
        InvalidInputError: The format is unknown.
    """
    if form == "wav":
        return _Wav(rate)
    if form == "pcm":
        return _Pcm(rate)
    if form not in _FORMS:
        known = ", ".join(FORMATS)
        raise InvalidInputError(f"response_format is {form!r}; use one of {known}", field="response_format")
    return _Compressed(_FORMS[form], rate)


def pcm16(samples: FloatArray) -> bytes:
    """[n] samples in [-1, 1] as 16-bit integers, little-endian; what is louder is clipped."""
    return (np.clip(samples, -1.0, 1.0) * 32767.0).round().astype("<i2").tobytes()


class Resampler:
    """Brings audio of one channel from one sample rate to another, piece by piece.

    Args:
        source: Sample rate that comes, in Hz.
        target: Sample rate that goes.
    """

    def __init__(self, source: int, target: int) -> None:
        self._source = source
        same = source == target
        self._resampler = None if same else av.AudioResampler(format="flt", layout="mono", rate=target)

    def add(self, samples: FloatArray) -> FloatArray:
        """More [n] samples."""
        if self._resampler is None or not len(samples):
            return samples
        return _joined(self._resampler.resample(_frame(samples, self._source)))

    def end(self) -> FloatArray:
        """What is left."""
        return _joined(self._resampler.resample(None)) if self._resampler is not None else np.zeros(0, np.float32)


class _Wav:
    def __init__(self, rate: int) -> None:
        form = struct.pack("<HHIIHH", 1, 1, rate, 2 * rate, 2, 16)
        self._head = b"RIFF" + struct.pack("<I", _UNKNOWN) + b"WAVEfmt " + struct.pack("<I", len(form)) + form
        self._head += b"data" + struct.pack("<I", _UNKNOWN)

    def add(self, samples: FloatArray) -> bytes:
        head, self._head = self._head, b""
        return head + pcm16(samples)

    def end(self) -> bytes:
        head, self._head = self._head, b""
        return head


class _Pcm:
    def __init__(self, rate: int) -> None:
        self._resampler = Resampler(rate, PCM_RATE)

    def add(self, samples: FloatArray) -> bytes:
        return pcm16(self._resampler.add(samples))

    def end(self) -> bytes:
        return pcm16(self._resampler.end())


class _Compressed:
    """Any codec of ffmpeg, into a container that needs no going back."""

    def __init__(self, form: _Form, rate: int) -> None:
        target = form.rate or (rate if rate in _MP3_RATES else OPUS_RATE)
        self._resampler, self._rate = Resampler(rate, target), target
        self._file = _Written()
        options = {"page_duration": "100000"} if form.container == "ogg" else {}  # microseconds, not a second
        self._container = av.open(self._file, "w", format=form.container, options=options)
        self._stream: Any = self._container.add_stream(form.codec, rate=target, layout="mono")
        self._fifo: Any = av.AudioFifo()

    def add(self, samples: FloatArray) -> bytes:
        self._encode(self._resampler.add(samples))
        return self._file.taken()

    def end(self) -> bytes:
        self._encode(self._resampler.end(), last=True)
        self._container.mux(self._stream.encode(None))
        self._container.close()
        return self._file.taken()

    def _encode(self, samples: FloatArray, last: bool = False) -> None:
        if len(samples):
            self._fifo.write(_frame(samples, self._rate))
        size = self._stream.codec_context.frame_size or 1024
        while self._fifo.samples >= size or (last and self._fifo.samples):
            frame = self._fifo.read(min(size, self._fifo.samples))
            self._container.mux(self._stream.encode(frame))


class _Written(io.RawIOBase):
    """A file that is given on as it is written; it cannot go back."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def taken(self) -> bytes:
        """What was written since the last call."""
        parts, self._parts = self._parts, []
        return b"".join(parts)


def _frame(samples: FloatArray, rate: int) -> av.AudioFrame:
    frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(samples[None], np.float32), format="flt", layout="mono")
    frame.sample_rate = rate
    return frame


def _joined(frames: list[av.AudioFrame]) -> FloatArray:
    parts: list[npt.NDArray[np.float32]] = [frame.to_ndarray()[0] for frame in frames]
    return np.concatenate(parts) if parts else np.zeros(0, np.float32)
