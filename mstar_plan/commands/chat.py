"""`mstar-plan chat`: talk with a language model in this process; it answers while it writes."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import typer

from mstar_plan.commands.family import OneFamily, opened
from mstar_plan.config import load
from mstar_plan.families.abilities import ChatMessage, TextOptions
from mstar_plan.families.servable import Servable
from mstar_plan.runtime.request import Value
from mstar_plan.runtime.runtime import Runtime


@dataclass(frozen=True, kw_only=True)
class ChatConfig(OneFamily):
    """Whom to talk with, and how it writes.

    Attributes:
        system: What the model is told first; empty: what its template says.
        options: How to write.
    """

    system: str = ""
    options: TextOptions = field(default_factory=TextOptions)


def chat(message: str, words: Sequence[str]) -> None:
    """Answers one message; without one, line after line of stdin until its end."""
    config = load("chat", words, ChatConfig)
    with opened(config, "text") as (servable, runtime):
        messages = [ChatMessage("system", config.system)] if config.system else []
        for line in [message] if message else _lines():
            messages.append(ChatMessage("user", line))
            messages.append(ChatMessage("assistant", _answer(servable, runtime, messages, config.options)))


def _lines() -> Iterable[str]:
    """What the user types; a prompt is shown where somebody can see it."""
    while True:
        if sys.stdin.isatty():
            typer.echo("> ", nl=False)
        line = sys.stdin.readline()
        if not line:
            return
        if line.strip():
            yield line.strip()


def _answer(servable: Servable, runtime: Runtime, messages: Sequence[ChatMessage], options: TextOptions) -> str:
    assert servable.text is not None
    call = servable.text.chat(messages, options)
    written: list[str] = []
    with runtime.stream(call.walk, call.values, emit=call.emit, graph=servable.name) as events:
        for event in events:
            for delta in event.value if isinstance(event, Value) else ():
                typer.echo(delta.text, nl=False)
                written.append(delta.text)
    typer.echo()
    return "".join(written)
