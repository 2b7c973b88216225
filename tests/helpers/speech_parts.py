"""The speech parts with their real weights, loaded once for all tests; and a language model that follows a script."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from mstar_plan.families.abilities import ChatMessage, TextDelta, TextOptions
from mstar_plan.models.speech.resample import resample
from mstar_plan.models.speech.speaker import Speaker
from mstar_plan.models.speech.transcriber import Transcriber, TranscriberConfig
from mstar_plan.models.speech.voice_activity import VoiceActivity
from mstar_plan.types import FloatArray
from mstar_plan.walks.component import FunctionComponent
from mstar_plan.walks.graph import Graph
from mstar_plan.walks.step import Loop, Node
from mstar_plan.walks.walk import Walk

SENTENCES = (
    "The quick brown fox jumps over the lazy dog near the river bank.",
    "Please remind me to buy apples and bread tomorrow morning.",
    "What is the capital of France?",
    "The weather is going to be cold and windy for the rest of the week.",
    "Photosynthesis is the process by which green plants turn sunlight into food.",
    "Can you tell me a short story about a dragon and a princess?",
)


@functools.cache
def speaker() -> Speaker:
    return Speaker()


@functools.cache
def activity() -> VoiceActivity:
    return VoiceActivity()


@functools.cache
def transcriber() -> Transcriber:
    return Transcriber(TranscriberConfig(threads=2))


@functools.cache
def spoken(text: str) -> FloatArray:
    """[n] of a text at 16 kHz, by the package's own one call."""
    return resample(package()(text, seed=0), 24_000, 16_000)


def package() -> Any:
    """The package's own speaker, behind ours."""
    return speaker()._engine("heart")


def words(text: str) -> str:
    """Small letters and digits only, as words are compared."""
    return " ".join(re.sub(r"[^a-z0-9' ]+", " ", text.lower().replace("-", " ")).split())


def silence(seconds: float) -> FloatArray:
    return np.zeros(int(16_000 * seconds), np.float32)


def noise(seconds: float, level: float = 0.02) -> FloatArray:
    made = np.random.default_rng(0).standard_normal(int(16_000 * seconds)) * level
    return made.astype(np.float32)


# --- a language model that follows a script ---------------------------------------------------------------------------


class Held:
    """A place in a pool: counts how many are held."""

    open = 0

    def __init__(self, parts: Sequence[str]) -> None:
        self.parts, self.released = tuple(parts), False
        Held.open += 1

    def release(self) -> None:
        if not self.released:
            self.released = True
            Held.open -= 1


def scripted_language(
    finishes: bool = True, pause: Callable[[int], None] = lambda at: None, aside: str = "", name: str = "scripted"
) -> Graph:
    """A model whose walk "scripted" writes one part of its `script` a step.

    Args:
        finishes: The last part says that it is.
        pause: Called before each step.
        aside: Written as another answer in every step.
        name: Of the graph and its walk.
    """

    def write(script: Held, at: Tensor) -> tuple[tuple[TextDelta, ...], bool]:
        place = int(at[0])
        pause(place)
        last = place == len(script.parts) - 1
        if last:
            script.release()
        finish = "stop" if last and finishes else None
        other = (TextDelta(1, aside, finish="stop"),) if aside else ()
        return (*other, TextDelta(0, script.parts[place], (place,), finish=finish)), last

    loop = Loop(
        Node("write", ("script", "at"), ("deltas", "done")),
        times=10_000,
        index="at",
        until="done",
        collect={"deltas": "answers"},
        name="writing",
    )
    component = FunctionComponent(write, ("script", "at"), ("deltas", "done"))
    return Graph(name, {"write": component}, {name: Walk(name, loop, ("script",), ("answers",))})


def script_begin(
    script: Callable[[str], Sequence[str]],
) -> Callable[[Sequence[ChatMessage], TextOptions], Mapping[str, Any]]:
    """Answers the last message with what `script` makes of it."""

    def begin(messages: Sequence[ChatMessage], options: TextOptions) -> Mapping[str, Any]:
        assert messages[-1].role == "user"
        assert options.n == 1
        return {"script": Held(script(messages[-1].content))}

    return begin
