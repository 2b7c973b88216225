"""The walks that hear: where speech is in audio, and what is said.

    activity:   detect
    transcribe: detect -> (speech?) -> window -> for each window: listen -> for each segment: tell -> write_down
                       -> (none)    -> nothing

What is no speech is never listened to: a transcriber that hears silence makes words up.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mstar_plan.errors import InvalidInputError, LimitExceededError
from mstar_plan.models.speech.spans import Span, SpanConfig, listening_windows, speech_spans
from mstar_plan.models.speech.transcriber import Passage, Transcriber
from mstar_plan.models.speech.voice_activity import FRAME, SAMPLE_RATE, VoiceActivity
from mstar_plan.types import FloatArray
from mstar_plan.walks.component import Batching, Component, FunctionComponent
from mstar_plan.walks.graph import Graph
from mstar_plan.walks.step import Branch, Loop, Node, Sequential
from mstar_plan.walks.walk import Walk

ACTIVITY, TRANSCRIBE = "activity", "transcribe"
LONGEST_AUDIO_S = 1800.0
MAX_SAMPLES = int(LONGEST_AUDIO_S * SAMPLE_RATE)
MAX_WINDOWS = 10_000
MAX_SEGMENTS = 1_000  # of one window


def activity_walk() -> Walk:
    """Audio [1, n] to "spans": [first, last) sample of each stretch of speech; "heard" says whether there is any."""
    return Walk(ACTIVITY, Node("detect", ("audio",), ("spans", "heard")), ("audio",), ("spans", "heard"))


def transcribe_walk() -> Walk:
    """Audio [1, n] to "transcript" and "segments"; emits each "segment" as it is known."""
    tell = Loop(
        Node("tell", ("found", "place"), ("segment",)),
        times="many",
        index="place",
        limit=MAX_SEGMENTS,
        collect={"segment": "told"},
        name="segments",
    )
    nothing_here = Node("pass_over", ("found",), ("told",))
    listen = Node("listen", ("audio", "windows", "at", "language", "prompt"), ("found", "many", "some"))
    windows = Loop(
        Sequential((listen, Branch("some", {"true": tell, "false": nothing_here}))),
        times="count",
        index="at",
        limit=MAX_WINDOWS,
        collect={"told": "chapters"},
        name="windows",
    )
    write_down = Node("write_down", ("chapters",), ("segments", "transcript"))
    window = Node("window", ("spans",), ("windows", "count"))
    speech = Sequential((window, windows, write_down))
    silence = Node("nothing", ("spans",), ("segments", "transcript"))
    step = Sequential(
        (Node("detect", ("audio",), ("spans", "heard")), Branch("heard", {"true": speech, "false": silence}))
    )
    return Walk(TRANSCRIBE, step, ("audio", "language", "prompt"), ("transcript", "segments"))


def activity_components(activity: VoiceActivity, config: SpanConfig | None = None) -> dict[str, Component]:
    """The component of the activity walk."""
    config = config or SpanConfig()

    def detect(audio: Tensor) -> tuple[tuple[Span, ...], bool]:
        samples = one_row(audio)
        probabilities, _ = activity.probabilities(samples)
        spans = speech_spans(probabilities, FRAME, len(samples), SAMPLE_RATE, config)
        return spans, bool(spans)

    return {"detect": FunctionComponent(detect, ("audio",), ("spans", "heard"), Batching.ALONE)}


def hearing_components(
    activity: VoiceActivity,
    transcriber: Transcriber,
    segment: Callable[[float, float, str], Hashable] = Passage,
    config: SpanConfig | None = None,
) -> dict[str, Component]:
    """The components of both walks.

    Args:
        activity: Finds speech.
        transcriber: Writes it down.
        segment: Makes a segment of its start and end, in seconds of the whole audio, and its text.
        config: When it is speech.
    """

    def window(spans: tuple[Span, ...]) -> tuple[tuple[Span, ...], int]:
        windows = listening_windows(spans, SAMPLE_RATE)
        return windows, len(windows)

    def listen(
        audio: Tensor, windows: tuple[Span, ...], at: Tensor, language: str, prompt: str
    ) -> tuple[tuple[Passage, ...], int, bool]:
        start, stop = windows[int(at[0])]
        first = prompt if int(at[0]) == 0 else ""
        passages = transcriber.hear(one_row(audio)[start:stop], language, first)
        from_s = start / SAMPLE_RATE
        found = tuple(Passage(from_s + p.start_s, from_s + p.end_s, p.text) for p in passages)[:MAX_SEGMENTS]
        return found, len(found), bool(found)

    def tell(found: tuple[Passage, ...], place: Tensor) -> Hashable:
        passage = found[int(place[0])]
        return segment(passage.start_s, passage.end_s, passage.text)

    def write_down(chapters: tuple[tuple[Any, ...], ...]) -> tuple[tuple[Any, ...], str]:
        segments = tuple(part for chapter in chapters for part in chapter)
        return segments, " ".join(part.text for part in segments)

    alone = Batching.ALONE
    made: dict[str, Component] = {
        "window": FunctionComponent(window, ("spans",), ("windows", "count"), alone),
        "listen": FunctionComponent(
            listen, ("audio", "windows", "at", "language", "prompt"), ("found", "many", "some"), alone
        ),
        "tell": FunctionComponent(tell, ("found", "place"), ("segment",), alone),
        "pass_over": FunctionComponent(lambda found: (), ("found",), ("told",), alone),
        "write_down": FunctionComponent(write_down, ("chapters",), ("segments", "transcript"), alone),
        "nothing": FunctionComponent(lambda spans: ((), ""), ("spans",), ("segments", "transcript"), alone),
    }
    return {**activity_components(activity, config), **made}


def activity_graph(name: str, activity: VoiceActivity) -> Graph:
    """Voice activity and its walk."""
    return Graph(name, activity_components(activity), {ACTIVITY: activity_walk()})


def hearing_graph(
    name: str,
    activity: VoiceActivity,
    transcriber: Transcriber,
    segment: Callable[[float, float, str], Hashable] = Passage,
) -> Graph:
    """A transcriber with its voice activity, and both walks."""
    walks = {ACTIVITY: activity_walk(), TRANSCRIBE: transcribe_walk()}
    return Graph(name, hearing_components(activity, transcriber, segment), walks)


def one_row(audio: Tensor) -> FloatArray:
    """Samples [n] of audio [1, n].

    Raises:
        InvalidInputError: It is of another shape or dtype, or not finite.
        LimitExceededError: It is too long.
    """
    if audio.ndim != 2 or audio.shape[0] != 1 or audio.dtype != torch.float32:
        raise InvalidInputError(
            f"audio is {audio.dtype} {list(audio.shape)}; send float32 [1, samples], each audio as its own request",
            field="audio",
        )
    if audio.shape[1] > MAX_SAMPLES:
        raise LimitExceededError(
            f"audio lasts {audio.shape[1] / SAMPLE_RATE:.0f} s; at most {LONGEST_AUDIO_S:.0f} s are taken",
            field="audio",
        )
    samples: FloatArray = audio[0].cpu().numpy()
    if not np.isfinite(samples).all():
        raise InvalidInputError("audio holds NaN or infinity; send finite samples", field="audio")
    return samples
