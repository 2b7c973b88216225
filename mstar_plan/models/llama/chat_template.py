"""Chat templates: Jinja text that comes with a model, run in a sandbox, and read so that nobody forges a message."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn, Protocol

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from mstar_plan.errors import InvalidInputError, WeightsError

MAX_TEMPLATE = 256 * 1024  # characters


class Encoder(Protocol):
    """What turns a prompt into tokens."""

    def encode(self, text: str, *, literal: bool = False) -> list[int]:
        """Ids of a text; `literal`: special tokens in it are plain text."""
        ...

    def has_special(self, text: str) -> bool:
        """Whether a text spells out a special token."""
        ...


class ChatTemplate:
    """A template, compiled once.

    Args:
        text: Jinja, as published models bring it.
        tokens: {name: text} of special tokens that it may use, `bos_token` and `eos_token` for two.

    Raises:
        WeightsError: It is too long, or no Jinja.
    """

    def __init__(self, text: str, tokens: Mapping[str, str] | None = None) -> None:
        if not text or len(text) > MAX_TEMPLATE:
            raise WeightsError(f"the chat template has {len(text)} characters; 1 to {MAX_TEMPLATE}", field="template")
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.globals |= {"raise_exception": _refuse, "strftime_now": lambda form: datetime.now().strftime(form)}
        environment.filters["tojson"] = lambda value, **options: json.dumps(value, ensure_ascii=False, **options)
        try:
            self._template = environment.from_string(text)
        except jinja2.TemplateError as error:
            raise WeightsError(f"the chat template is damaged: {error}", field="template") from error
        self._tokens = dict(tokens or {})
        self.takes_tools = "tools" in text

    def render(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()) -> str:
        """The prompt that asks for the next message of a conversation.

        Raises:
            InvalidInputError: The template refuses these messages.
        """
        try:
            return self._template.render(
                messages=list(messages), tools=list(tools) or None, add_generation_prompt=True, **self._tokens
            )
        except (jinja2.TemplateError, TypeError, KeyError, AttributeError) as error:
            raise InvalidInputError(
                f"the model's chat template refuses these messages: {error}", field="messages"
            ) from error

    def encode(
        self, encoder: Encoder, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()
    ) -> list[int]:
        """Tokens of the prompt. Special tokens spelled out in a message's text are read as text.

        Raises:
            InvalidInputError: See `render`.
        """
        if not any(encoder.has_special(str(message.get("content", ""))) for message in messages):
            return encoder.encode(self.render(messages, tools))
        mark = f"\x00{secrets.token_hex(8)}-"
        marked = [{**message, "content": f"{mark}{i}\x00"} for i, message in enumerate(messages)]
        first, *rest = self.render(marked, tools).split(mark)
        tokens = encoder.encode(first)
        for part in rest:
            number, _, after = part.partition("\x00")
            tokens += encoder.encode(str(messages[int(number)].get("content", "")), literal=True)
            tokens += encoder.encode(after)
        return tokens


def _refuse(reason: str) -> NoReturn:
    raise jinja2.TemplateError(reason)
