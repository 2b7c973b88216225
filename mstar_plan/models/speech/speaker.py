"""Speaker: English text to speech with the network, lexicon and voices of hibari-tts, all of it on this machine.

The network sees a clause as a whole, its ends included, so that is the least that can be begun with; the samples are
then made piece by piece. The noise in the voice is drawn from the request's seed and the clause's number.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from hibari import Hibari, dsp, voices

from mstar_plan.errors import ComponentError, ConfigError, InvalidInputError, WeightsError, did_you_mean
from mstar_plan.models.speech.vocoder import Frames, draw_noise, mirror, render
from mstar_plan.types import FloatArray

SAMPLE_RATE = 24_000
FRAME_RATE = 80
LONGEST_PHONEMES = 400  # of one run of the network
MAX_FRAMES = 80 * 120  # two minutes in one clause: more than its longest text can take at half speed
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SpeakerConfig:
    """How to speak.

    Attributes:
        threads: Of one operator of the network; it is small, and more than one gains little.
        piece_frames: Frames of 12.5 ms in one piece of audio.
        weights: Another network with the same inputs and outputs, in the place of the packaged voice.
    """

    threads: int = 1
    piece_frames: int = 32
    weights: Path | None = None

    def __post_init__(self) -> None:
        for name in ("threads", "piece_frames"):
            if not 1 <= getattr(self, name) <= 4096:
                raise ConfigError(f"{name} is {getattr(self, name)}; it needs 1 to 4096", field=name)


class Speaker:
    """Speaks phonemes. Safe to use from several threads.

    Args:
        config: How.

    Raises:
        WeightsError: The weights are no network of this kind.
    """

    sample_rate = SAMPLE_RATE

    def __init__(self, config: SpeakerConfig | None = None) -> None:
        self.config = config or SpeakerConfig()
        self.clipped = 0  # samples that were outside [-1, 1] since the start
        self._lock = threading.Lock()
        self._loaded: dict[str, Hibari] = {}
        self.voices: tuple[str, ...] = (voices.DEFAULT,) if self.config.weights else _local_voices()
        self.phonemes("Ready.", self.voices[0])  # loads what would make the first request late

    def voice(self, name: str) -> str:
        """The voice of this name; the first one for an empty name.

        Raises:
            InvalidInputError: It is not on this machine.
        """
        if not name:
            return self.voices[0]
        if name not in self.voices:
            raise InvalidInputError(f"there is no voice {name!r}{did_you_mean(name, self.voices)}", field="voice")
        return name

    def phonemes(self, text: str, voice: str) -> tuple[str, ...]:
        """What the network reads for a text, in runs of at most `LONGEST_PHONEMES`; nothing if it has no sound."""
        with self._lock:  # the lexicon keeps notes while it looks words up
            engine = self._engine(voice)
            found = [part for run in engine.phonemize(text) for part in _bounded(run)]
            return tuple(run for run in found if any(symbol.isalpha() and symbol in engine.vocab for symbol in run))

    def frames(self, phonemes: str, voice: str, speed: float, seed: int) -> Frames:
        """Runs the network over one clause.

        Raises:
            ComponentError: It gave values that are not finite, or far too many frames.
        """
        with self._lock:
            engine = self._engine(voice)
        ids = np.asarray([engine.ids(phonemes)], np.int64)
        outputs = engine.sess.run(None, {"ids": ids, "speed": np.asarray([speed], np.float32)})
        harmonic, turn, rough, free, phase, pitch_F = (np.asarray(output[0], np.float32) for output in outputs)
        count = int(harmonic.shape[1])
        if not 2 <= count <= MAX_FRAMES:  # the pulse train is mirrored at its ends: two frames are the least
            raise ComponentError(f"the speech network gave {count} frames for {ids.shape[1]} phonemes")
        if not all(np.isfinite(part).all() for part in (harmonic, turn, rough, free, phase, pitch_F)):
            raise ComponentError("the speech network gave values that are not finite")
        return Frames(harmonic, turn, rough, free, phase, mirror(dsp.pulses(pitch_F)), draw_noise(count, seed))

    def pieces(self, frames: Frames) -> int:
        """How many pieces of audio a clause has."""
        return -(-frames.count // self.config.piece_frames)

    def piece(self, frames: Frames, number: int) -> FloatArray:
        """Samples of one piece of a clause, float32 in [-1, 1].

        Speech peaks near 0.4, so what is outside is cut off and counted rather than all of it made quieter.
        """
        start = number * self.config.piece_frames
        samples = render(frames, start, min(start + self.config.piece_frames, frames.count))
        if not np.isfinite(samples).all():
            raise ComponentError("the vocoder gave samples that are not finite")
        over = int((np.abs(samples) > 1).sum())
        if over:
            self.clipped += over
            _log.warning("%d of %d samples of speech were outside [-1, 1] and were cut off", over, len(samples))
        return np.clip(samples, -1, 1)

    def _engine(self, voice: str) -> Hibari:
        if voice not in self._loaded:
            path = self.config.weights
            try:
                engine = Hibari(voice=voice, model=str(path) if path else None, threads=self.config.threads)
            except Exception as error:  # what a runtime library makes of a damaged file is its own
                raise WeightsError(f"voice {voice!r} ({path or 'packaged'}) cannot be loaded: {error}") from error
            given = {value.name for value in engine.sess.get_inputs()}, len(engine.sess.get_outputs())
            if given != ({"ids", "speed"}, 6):
                raise WeightsError(f"{path} is no network of hibari-tts: it has inputs and outputs {given}")
            self._loaded[voice] = engine
        return self._loaded[voice]


def _local_voices() -> tuple[str, ...]:
    """The packaged voice, and others whose file is in hibari's cache: nothing is fetched."""
    cache = Path(voices.cache_dir())
    others = sorted(name for name, about in voices.VOICES.items() if (cache / about["file"]).is_file())
    return (voices.DEFAULT, *(name for name in others if name != voices.DEFAULT))


def _bounded(run: str) -> Sequence[str]:
    """A run of phonemes in parts that are not too long, cut between words where there are any."""
    parts: list[str] = []
    while len(run) > LONGEST_PHONEMES:
        space = run.rfind(" ", LONGEST_PHONEMES // 2, LONGEST_PHONEMES)
        end = space if space > 0 else LONGEST_PHONEMES
        parts.append(run[:end])
        run = run[end:].lstrip()
    return [*parts, run]
