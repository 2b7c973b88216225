"""Where speech begins and ends, from the probability of speech in each frame; and windows of speech to listen to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mstar_plan.errors import ConfigError
from mstar_plan.types import FloatArray

Span = tuple[int, int]  # [first sample, one behind the last)


@dataclass(frozen=True)
class SpanConfig:
    """When it is speech. Speech begins at one threshold and ends below a lower one, so that it does not flicker.

    Attributes:
        begin: Probability at which it begins.
        end: Probability below which it may end.
        least_speech_s: Shorter speech is a click, and left out.
        least_silence_s: Shorter silence is a pause in it.
        longest_s: Longer speech is cut where it is least likely to be speech.
        margin_s: Added at both ends.
    """

    begin: float = 0.5
    end: float = 0.35
    least_speech_s: float = 0.2
    least_silence_s: float = 0.2
    longest_s: float = 28.0
    margin_s: float = 0.1

    def __post_init__(self) -> None:
        if not 0 < self.end <= self.begin < 1:
            raise ConfigError(
                f"speech begins at {self.begin} and ends at {self.end}; it needs 0 < end <= begin < 1", field="begin"
            )
        if not (self.least_speech_s >= 0 and self.least_silence_s >= 0 and self.margin_s >= 0):
            raise ConfigError("a least length or the margin is negative; use seconds >= 0", field="margin_s")
        if not self.longest_s >= 1:
            raise ConfigError(f"longest_s is {self.longest_s}; it needs at least 1 second", field="longest_s")


def speech_spans(
    probabilities: FloatArray, frame: int, samples: int, rate: int, config: SpanConfig | None = None
) -> tuple[Span, ...]:
    """Returns the spans of speech, in order, not overlapping, within the audio.

    Args:
        probabilities: [frames] probability of speech.
        frame: Samples of one frame.
        samples: Of the audio.
        rate: Samples a second.
        config: When it is speech.
    """
    config = config or SpanConfig()
    silence = max(1, round(config.least_silence_s * rate / frame))
    runs = _runs(probabilities.tolist(), config, silence)
    runs = [run for run in runs if (run[1] - run[0]) * frame >= config.least_speech_s * rate]
    longest = max(2, int(config.longest_s * rate) // frame)
    cut = [part for run in runs for part in _cut(run, probabilities, longest)]
    margin = round(config.margin_s * rate)
    spans: list[Span] = []
    for number, (first, last) in enumerate(cut):
        before = cut[number - 1][1] * frame if number else 0
        after = cut[number + 1][0] * frame if number + 1 < len(cut) else samples
        start = max(first * frame - margin, (before + first * frame + 1) // 2 if number else 0, 0)
        stop = min(last * frame + margin, (last * frame + after) // 2 if number + 1 < len(cut) else samples, samples)
        if start < stop:
            spans.append((start, stop))
    return tuple(spans)


def listening_windows(
    spans: Sequence[Span], rate: int, longest_s: float = 29.0, gap_s: float = 3.0
) -> tuple[Span, ...]:
    """Returns windows that hold all spans: neighbours are heard together, unless that is too long or far apart."""
    windows: list[Span] = []
    for start, stop in spans:
        if windows and stop - windows[-1][0] <= longest_s * rate and start - windows[-1][1] <= gap_s * rate:
            windows[-1] = (windows[-1][0], stop)
        else:
            windows.append((start, stop))
    return tuple(windows)


def _runs(probabilities: Sequence[float], config: SpanConfig, silence: int) -> list[Span]:
    """Runs of speech, in frames: each ends where at least `silence` frames of silence begin."""
    runs: list[Span] = []
    start: int | None = None
    quiet_from: int | None = None
    for at, probability in enumerate(probabilities):
        if start is None:
            if probability >= config.begin:
                start = at
        elif probability >= config.begin:
            quiet_from = None
        elif probability < config.end:
            quiet_from = at if quiet_from is None else quiet_from
        if start is not None and quiet_from is not None and at + 1 - quiet_from >= silence:
            runs.append((start, quiet_from))
            start = quiet_from = None
    if start is not None:
        runs.append((start, quiet_from if quiet_from is not None else len(probabilities)))
    return runs


def _cut(run: Span, probabilities: FloatArray, longest: int) -> list[Span]:
    """A run in parts of at most `longest` frames, cut where speech is least likely in the later half of each."""
    start, stop = run
    parts: list[Span] = []
    while stop - start > longest:
        middle = start + longest // 2
        at = middle + int(np.argmin(probabilities[middle : start + longest]))
        at = max(at, start + 1)
        parts.append((start, at))
        start = at
    return [*parts, (start, stop)]
