"""Chat templates: Jinja text that comes with a model, run in a sandbox, and read so that nobody forges a message."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn, Protocol

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from mstar_plan.errors import InvalidInputError, WeightsError

MAX_TEMPLATE = 256 * 1024  # characters
# What a template's expressions may raise beside Jinja's own errors.
_REFUSALS = (TypeError, ValueError, LookupError, ArithmeticError, AttributeError, RecursionError)


class Encoder(Protocol):
    """What turns a prompt into tokens."""

    def encode(self, text: str, *, literal: bool = False) -> list[int]:
        """Ids of a text; `literal`: special tokens in it are plain text."""
        ...

    @property
    def special(self) -> tuple[str, ...]:
        """Texts of the special tokens."""
        ...


class ChatTemplate:
    """A template, compiled once.

    Args:
        text: Jinja, as published models bring it.
        tokens: {name: text} of special tokens that it may use, `bos_token` and `eos_token` for two.

    Attributes:
        takes_tools: It tells the model of tools.
        takes_calls: It writes down the calls of earlier messages.

    Raises:
        WeightsError: It is too long, or no Jinja.
    """

    def __init__(self, text: str, tokens: Mapping[str, str] | None = None) -> None:
        if not text or len(text) > MAX_TEMPLATE:
            raise WeightsError(f"the chat template has {len(text)} characters; 1 to {MAX_TEMPLATE}", field="template")
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.globals |= {"raise_exception": _refuse, "strftime_now": lambda form: datetime.now().strftime(form)}
        environment.filters["tojson"] = lambda value, **options: json.dumps(value, ensure_ascii=False, **options)
        try:
            self._template = environment.from_string(text)
        except jinja2.TemplateError as error:
            raise WeightsError(f"the chat template is damaged: {error}", field="template") from error
        self._tokens = dict(tokens or {})
        self.takes_tools, self.takes_calls = "tools" in text, "tool_calls" in text

    def render(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()) -> str:
        """The prompt that asks for the next message of a conversation.

        Raises:
            InvalidInputError: The template refuses these messages.
        """
        try:
            return self._template.render(
                messages=list(messages), tools=list(tools) or None, add_generation_prompt=True, **self._tokens
            )
        except (jinja2.TemplateError, *_REFUSALS) as error:
            raise InvalidInputError(
                f"the model's chat template refuses these messages: {error}", field="messages"
            ) from error

    def encode(
        self, encoder: Encoder, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()
    ) -> list[int]:
        """Tokens of the prompt. Special tokens spelled out in a message or a tool are read as text.

        They are out of the template's sight: in their place it sees a word that nobody can guess.

        Raises:
            InvalidInputError: See `render`.
        """
        marks = _Marks(encoder.special)
        try:
            hidden = marks.hide(list(messages)), marks.hide(list(tools))
        except RecursionError as error:
            raise InvalidInputError(
                "messages or tools are nested too deep; send flatter ones", field="tools"
            ) from error
        tokens: list[int] = []
        for text, literal in marks.parts(self.render(*hidden)):
            tokens += encoder.encode(text, literal=literal)
        return tokens


class _Marks:
    """Stands for what must be read as text, while a template arranges the rest."""

    def __init__(self, special: Sequence[str]) -> None:
        longest_first = sorted((text for text in special if text), key=len, reverse=True)
        self._special = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
        self._key = secrets.token_hex(8)
        self._found: list[str] = []

    def hide(self, value: Any) -> Any:
        """Plain data with a mark for each special token."""
        if isinstance(value, str):
            return self._special.sub(self._mark, value)
        if isinstance(value, Mapping):
            return {self.hide(name): self.hide(each) for name, each in value.items()}
        return [self.hide(each) for each in value] if isinstance(value, list | tuple) else value

    def parts(self, text: str) -> Iterator[tuple[str, bool]]:
        """Cuts a text at its marks: pieces of it, and what a mark stands for (True)."""
        for number, part in enumerate(re.split(f"{self._key}x([0-9]+)x", text)):
            yield (self._found[int(part)], True) if number % 2 else (part, False)

    def _mark(self, match: re.Match[str]) -> str:
        self._found.append(match[0])
        return f"{self._key}x{len(self._found) - 1}x"


def _refuse(reason: str) -> NoReturn:
    raise jinja2.TemplateError(reason)
