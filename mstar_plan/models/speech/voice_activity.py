"""Voice activity: how likely each 32 ms of audio are speech, by the Silero network of the package silero-vad.

The package itself is not imported, only its weights are used: importing it sets torch's number of threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnxruntime as ort

from mstar_plan.errors import ComponentError, ConfigError, UnavailableError, WeightsError
from mstar_plan.types import FloatArray

SAMPLE_RATE = 16_000
FRAME, CONTEXT = 512, 64  # samples of a frame, and of the one before that the network sees with it
BLOCK = 512  # frames of one run of the network
WIDTH = 128  # of its recurrent state
PACKAGE, FILE = "silero_vad", "data/silero_vad_16k_sequence.onnx"


@dataclass(frozen=True)
class VoiceActivityConfig:
    """How to load the network.

    Attributes:
        threads: Of one operator; it is recurrent and small, so that more than one gains nothing.
        weights: Another file of the same network (its "sequence" form), in the place of the packaged one.
    """

    threads: int = 1
    weights: Path | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.threads <= 1024:
            raise ConfigError(f"threads is {self.threads}; it needs 1 to 1024", field="threads")


@dataclass(frozen=True, eq=False)
class Heard:
    """What the network remembers between two parts of one audio.

    Attributes:
        hidden: [1, 1, 128] of its recurrent layer.
        cell: [1, 1, 128] likewise.
        context: [64] last samples.
    """

    hidden: FloatArray
    cell: FloatArray
    context: FloatArray

    @staticmethod
    def nothing() -> Heard:
        """Before the first sample."""
        zeros = np.zeros((1, 1, WIDTH), np.float32)
        return Heard(zeros, zeros, np.zeros(CONTEXT, np.float32))


class VoiceActivity:
    """The network. It keeps nothing between calls, and is safe to use from several threads.

    Args:
        config: How to load it.

    Raises:
        UnavailableError: The package is not installed.
        WeightsError: The file is no such network.
    """

    sample_rate = SAMPLE_RATE

    def __init__(self, config: VoiceActivityConfig | None = None) -> None:
        config = config or VoiceActivityConfig()
        path = config.weights or packaged_weights()
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = config.threads
        options.log_severity_level = 3
        try:
            self._session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # the library's own errors have no common base
            raise WeightsError(f"{path} cannot be loaded: {error}; get it anew", field="weights") from error
        ports = {value.name for value in self._session.get_inputs()}
        if ports != {"input", "h", "c"}:
            raise WeightsError(f"{path} has inputs {sorted(ports)}; bring silero's sequence network", field="weights")

    def probabilities(self, audio: FloatArray, heard: Heard | None = None) -> tuple[FloatArray, Heard]:
        """Returns [ceil(n / 512)] probabilities of speech of audio [n], and what to go on from.

        Args:
            audio: [n] float32 at 16 kHz. A last frame that is not full is filled up with silence: to go on later, send
                multiples of 512.
            heard: What the audio before has left; None at its start.

        Raises:
            ComponentError: A probability is not between 0 and 1.
        """
        heard = heard or Heard.nothing()
        found = [np.zeros(0, np.float32)]
        for start in range(0, len(audio), BLOCK * FRAME):
            samples = audio[start : start + BLOCK * FRAME]
            frames = np.zeros((-(-len(samples) // FRAME), FRAME), np.float32)
            frames.reshape(-1)[: len(samples)] = samples
            before = np.concatenate([heard.context[None], frames[:-1, -CONTEXT:]])
            feed = {"input": np.concatenate([before, frames], 1), "h": heard.hidden, "c": heard.cell}
            part, hidden, cell = self._session.run(["speech_probs", "hn", "cn"], feed)
            found.append(np.asarray(part, np.float32).reshape(-1))
            heard = Heard(hidden, cell, frames[-1, -CONTEXT:].copy())
        probabilities = np.concatenate(found)
        if not ((probabilities >= 0) & (probabilities <= 1)).all():
            raise ComponentError("the voice activity network gave values that are no probabilities")
        return probabilities, heard


def packaged_weights() -> Path:
    """Where the package's network is.

    Raises:
        UnavailableError: It is not installed.
    """
    spec = find_spec(PACKAGE)
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        if (Path(folder) / FILE).is_file():
            return Path(folder) / FILE
    raise UnavailableError("the voice activity network is not installed: pip install silero-vad", field="model")
