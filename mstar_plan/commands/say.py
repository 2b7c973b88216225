"""`mstar-plan say`: speak a text into a sound file."""

from __future__ import annotations

import time
import wave
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import typer
from torch import Tensor

from mstar_plan.commands.family import OneFamily, opened
from mstar_plan.config import load
from mstar_plan.errors import ConfigError
from mstar_plan.runtime.request import Value


@dataclass(frozen=True, kw_only=True)
class SayConfig(OneFamily):
    """Who speaks, and how.

    Attributes:
        voice: Name of a voice; empty: the family's first one.
        speed: 1 is the voice's own.
    """

    voice: str = ""
    speed: float = 1.0


def say(text: str, out: Path, words: Sequence[str]) -> None:
    """Writes a mono WAV file of 16 bits, and says how long it took."""
    if out.suffix.lower() != ".wav":
        raise ConfigError(f"out is {str(out)!r}; name a .wav file", field="out")
    if not out.parent.is_dir():
        raise ConfigError(f"out is {str(out)!r}, and there is no folder {str(out.parent)!r}; make it", field="out")
    config = load("say", words, SayConfig)
    with opened(config, "speech") as (servable, runtime):
        assert servable.speech is not None
        call = servable.speech.speak(text, config.voice, config.speed)
        began, first, pieces = time.monotonic(), 0.0, []
        with runtime.stream(call.walk, call.values, emit=("audio",), graph=servable.name) as events:
            for event in events:
                if isinstance(event, Value) and isinstance(event.value, Tensor) and event.value.numel():
                    first = first or time.monotonic() - began
                    pieces.append(event.value[0].cpu().numpy())
        spent, rate = time.monotonic() - began, servable.speech.sample_rate
    samples = np.concatenate(pieces) if pieces else np.zeros(0, np.float32)
    with wave.open(str(out), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((samples * 32767).round().astype("<i2").tobytes())
    seconds = len(samples) / rate
    typer.echo(f"{out}: {seconds:.2f} s of speech in {spent:.2f} s, the first of it after {first * 1e3:.0f} ms")
