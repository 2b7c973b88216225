"""Audio files that come in: known by their first bytes, bounded before they are decoded, one channel, one rate."""

from __future__ import annotations

import math
from typing import Any, BinaryIO

import av
import numpy as np
import soundfile as sf

from mstar_plan.errors import InvalidInputError, LimitExceededError
from mstar_plan.serving.http.audio_encoding import Resampler
from mstar_plan.types import FloatArray

MIN_RATE, MAX_RATE, MAX_CHANNELS = 4000, 384000, 16
_BLOCK = 65536  # frames that are decoded at a time
# Demuxers of ffmpeg that open nothing but the file itself; its guessing would take playlists and other openers, too.
_DEMUXERS = ("matroska,webm", "mov,mp4,m4a,3gp,3g2,mj2", "aac")
KNOWN = "wav, flac, ogg, opus, mp3, webm, mp4, m4a, aac"


def read_audio(file: BinaryIO, rate: int, max_s: float, field: str = "file") -> FloatArray:
    """Returns the audio of a file, [n] float32 in [-1, 1], channels averaged.

    Args:
        file: The file, at its beginning.
        rate: Sample rate that is wanted, in Hz.
        max_s: Longest audio that is taken, in seconds.
        field: What errors call it.

    Raises:
        InvalidInputError: It is not audio of a known format, is damaged, empty, or holds NaN.
        LimitExceededError: It is too long, or has too many channels.
    """
    head = file.read(64)
    file.seek(0)
    reader = _by_sndfile if _is_sndfile(head) else _by_ffmpeg
    try:
        source, samples = reader(file, head, max_s, field)
    except (InvalidInputError, LimitExceededError):
        raise
    except Exception as error:  # decoders raise many kinds on damaged data, none of which may pass
        what = f"{field} cannot be decoded ({type(error).__name__})"
        raise InvalidInputError(f"{what}; send a whole file of {KNOWN}", field=field) from error
    if not len(samples):
        raise InvalidInputError(f"{field} holds no audio", field=field)
    if not np.isfinite(samples).all():
        raise InvalidInputError(f"{field} holds samples that are NaN or infinite", field=field)
    resampler = Resampler(source, rate)
    return np.concatenate([resampler.add(np.clip(samples, -1.0, 1.0)), resampler.end()])


def _is_sndfile(head: bytes) -> bool:
    riff = head[:4] in (b"RIFF", b"RF64") and head[8:12] == b"WAVE"
    mp3 = head[:3] == b"ID3" or (len(head) > 2 and head[0] == 0xFF and head[1] & 0xE6 in (0xE2, 0xE4, 0xE6))
    return riff or mp3 or head[:4] in (b"fLaC", b"OggS")


def _demuxer(head: bytes, field: str) -> str:
    if head[:4] == b"\x1aE\xdf\xa3":
        return _DEMUXERS[0]
    if head[4:8] == b"ftyp":
        return _DEMUXERS[1]
    if len(head) > 1 and head[0] == 0xFF and head[1] & 0xF6 == 0xF0:
        return _DEMUXERS[2]
    raise InvalidInputError(f"{field} is of no known format; send {KNOWN}", field=field)


def _by_sndfile(file: BinaryIO, head: bytes, max_s: float, field: str) -> tuple[int, FloatArray]:
    del head
    with sf.SoundFile(file) as sound:
        _check(sound.samplerate, sound.channels, field)
        most = math.ceil(max_s * sound.samplerate)
        parts, count = [], 0
        while len(block := sound.read(_BLOCK, dtype="float32", always_2d=True)):
            count += len(block)
            _check_length(count, most, max_s, field)
            parts.append(block.mean(1, dtype=np.float32))
        return sound.samplerate, _whole(parts)


def _by_ffmpeg(file: BinaryIO, head: bytes, max_s: float, field: str) -> tuple[int, FloatArray]:
    demuxer = _demuxer(head, field)
    with av.open(file, format=demuxer, options={"protocol_whitelist": "pipe"}, metadata_errors="replace") as container:
        if not container.streams.audio:
            raise InvalidInputError(f"{field} holds no audio", field=field)
        stream = container.streams.audio[0]
        rate = stream.codec_context.sample_rate
        _check(rate, stream.codec_context.channels, field)
        most = math.ceil(max_s * rate)
        mono: Any = av.AudioResampler(format="fltp", layout="mono", rate=rate)
        parts, count = [], 0
        for frame in container.decode(stream):
            frame.pts = None
            for each in mono.resample(frame):
                count += each.samples
                _check_length(count, most, max_s, field)
                parts.append(each.to_ndarray()[0])
        return rate, _whole(parts)


def _check(rate: int, channels: int, field: str) -> None:
    if not MIN_RATE <= rate <= MAX_RATE:
        what = f"{field} has {rate} samples a second"
        raise InvalidInputError(f"{what}; it needs {MIN_RATE} to {MAX_RATE}", field=field)
    if not 1 <= channels <= MAX_CHANNELS:
        raise LimitExceededError(f"{field} has {channels} channels; at most {MAX_CHANNELS} are taken", field=field)


def _check_length(count: int, most: int, max_s: float, field: str) -> None:
    if count > most:
        raise LimitExceededError(f"{field} is longer than {max_s:g} s, which is the longest that is taken", field=field)


def _whole(parts: list[FloatArray]) -> FloatArray:
    return np.concatenate(parts) if parts else np.zeros(0, np.float32)
