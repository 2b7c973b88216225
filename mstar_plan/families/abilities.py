"""Abilities: what wires may ask of a family, in the words of the wire's users; each answers with a walk to run.

A wire turns its request into the types here, asks the ability for a `WalkCall`, runs that on the runtime, and turns
what comes on the call's wires back. So no wire knows a model, and no model a wire.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from mstar_plan.runtime.generation.text import FinishReason, TextDelta, TextOptions, TextUsage, TokenLogprob
from mstar_plan.types import ActionSpec, FloatArray, ImageArray

__all__ = [  # the names of runtime/generation/text.py are passed on: wires need no other import
    "ActionAbility", "ChatMessage", "ConversationAbility", "EmbeddingAbility", "FinishReason", "ObservationField",
    "Segment", "SpeechAbility", "TextAbility", "TextCall", "TextDelta", "TextOptions", "TextUsage", "TokenLogprob",
    "Tool", "ToolCall", "TranscriptionAbility", "WalkCall",
]  # fmt: skip


@dataclass(frozen=True, eq=False)
class WalkCall:
    """A walk to run for a request.

    Attributes:
        walk: Name of the walk.
        values: Its inputs. Those that hold a place in a pool are released when the request ends; call `release` if it
            is never submitted.
        emit: Wires that come while it runs.
    """

    walk: str
    values: Mapping[str, Any]
    emit: tuple[str, ...] = ()

    def release(self) -> None:
        """Gives back what the values hold; for a call that is not submitted."""
        for value in self.values.values():
            if hasattr(value, "release"):
                value.release()


# --- text -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ToolCall:
    """A function that the model wants called: its name and arguments (JSON text)."""

    name: str
    arguments: str
    id: str = ""


@dataclass(frozen=True, eq=False)
class ChatMessage:
    """One message of a conversation.

    Attributes:
        role: "system", "user", "assistant" or "tool".
        content: Its text.
        images: Pictures [H_px, W_px, 3] uint8 of a user's message, for models that see.
        tool_calls: Of an assistant's message.
        tool_call_id: Of a tool's message: what it answers.
    """

    role: str
    content: str = ""
    images: tuple[ImageArray, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""


@dataclass(frozen=True, eq=False)
class Tool:
    """A function that the model may call; `parameters` is its JSON schema."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class TextCall(WalkCall):
    """A call that writes text: emits "deltas", each a tuple of `TextDelta` (of several answers), and its output "usage"
    is a `TextUsage`. `prompt` is the text that the model reads, for `echo`."""

    prompt: str = ""


class TextAbility(Protocol):
    """Writes text."""

    context_tokens: int
    sees: bool  # takes images
    tool_starts: tuple[str, ...]  # what an answer that calls a function begins with; others may be streamed

    def chat(self, messages: Sequence[ChatMessage], options: TextOptions, tools: Sequence[Tool] = ()) -> TextCall:
        """The answer to a conversation. May wait for room; raises OverloadedError if there is none in time."""
        ...

    def complete(self, prompt: str | Sequence[int], options: TextOptions) -> TextCall:
        """What follows a text, or its token ids."""
        ...

    def parse_tools(self, text: str, tools: Sequence[Tool]) -> tuple[str, tuple[ToolCall, ...]]:
        """Splits an answer to a conversation with tools into its text and the calls that it holds."""
        ...


# --- speech -----------------------------------------------------------------------------------------------------------


class SpeechAbility(Protocol):
    """Speaks text."""

    sample_rate: int
    voices: tuple[str, ...]

    def speak(self, text: str, voice: str = "", speed: float = 1.0) -> WalkCall:
        """Emits "audio" [1, n] float32 in [-1, 1], piece by piece; their concatenation is the output "speech"."""
        ...


@dataclass(frozen=True)
class Segment:
    """A part of a transcript, in seconds."""

    start_s: float
    end_s: float
    text: str


class TranscriptionAbility(Protocol):
    """Writes down speech."""

    sample_rate: int
    languages: tuple[str, ...]

    def transcribe(self, audio: FloatArray, language: str = "", prompt: str = "") -> WalkCall:
        """Outputs "transcript" (text) and "segments" (tuple of `Segment`) of audio [n] at `sample_rate`; emits
        "segment", one after the other."""
        ...


class ConversationAbility(Protocol):
    """Answers speech with speech."""

    hears: int  # sample rate in
    speaks: int  # sample rate out

    def converse(
        self, audio: FloatArray, messages: Sequence[ChatMessage], options: TextOptions, voice: str = ""
    ) -> WalkCall:
        """Emits "transcript" (text of what was heard), "deltas" (as `TextCall`) and "audio" (as `SpeechAbility`)."""
        ...


class EmbeddingAbility(Protocol):
    """Maps texts to vectors."""

    width: int

    def embed(self, texts: Sequence[str]) -> WalkCall:
        """Outputs "embeddings" [B, D] float32 and "tokens", an int64 [B] of how long each text was."""
        ...


# --- action -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ObservationField:
    """One key of what a policy sees: "image" [H_px, W_px, 3] uint8, "state" [n] float32, or "text"."""

    key: str
    kind: Literal["image", "state", "text"]
    shape: tuple[int | None, ...] = ()
    names: tuple[str, ...] = ()
    required: bool = True
    description: str = ""


class ActionAbility(Protocol):
    """A policy: what to do, from what is seen."""

    fields: tuple[ObservationField, ...]
    action: ActionSpec  # names, units, limits and dt of what comes out
    chunk: int  # H, actions of one answer

    def act(
        self,
        observation: Mapping[str, npt.NDArray[np.generic] | str | float],
        *,
        seed: int | None = None,
        previous: FloatArray | None = None,
        delay: int = 0,
    ) -> WalkCall:
        """Outputs "actions" [1, H, A] float32, un-normalised, finite and within limits.

        Args:
            observation: {key of `fields`: value}.
            seed: Of the noise; None: one is drawn.
            previous: [n, A] actions of the last answer that are not executed yet, for real-time chunking.
            delay: How many of them will be executed before the answer is there.

        Raises:
            InvalidInputError: A key is missing, unknown, or of another shape.
        """
        ...
