"""What writing needs to know of a tokenizer, and the text of an answer as it grows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class TokenReader(Protocol):
    """Turns one answer's tokens into text, one after the other."""

    def step(self, token: int) -> str:
        """New text; empty while a character is not complete."""
        ...

    def rest(self) -> str:
        """What is left at the end: an incomplete character becomes U+FFFD."""
        ...


class Vocabulary(Protocol):
    """A tokenizer."""

    size: int
    ends: frozenset[int]  # tokens that end an answer

    def reader(self) -> TokenReader:
        """For one answer."""
        ...

    def text_of(self, token: int) -> str:
        """One token by itself, for people."""
        ...

    def json(self) -> str:
        """The tokenizer's description, as the `tokenizers` library writes it."""
        ...


class AnswerText:
    """An answer's text with its stop texts: what could be the start of one is held back until that is known.

    Args:
        reader: Of the tokens.
        stops: Texts before which the answer ends.
    """

    def __init__(self, reader: TokenReader, stops: Sequence[str] = ()) -> None:
        self._reader, self._stops = reader, tuple(stops)
        self._held = ""
        self.stopped = False

    def add(self, token: int) -> str:
        """Text that is certain now."""
        return self._pass_on(self._reader.step(token))

    def end(self) -> str:
        """What was held back, at the end of the answer."""
        if self.stopped:
            return ""
        text = self._pass_on(self._reader.rest())
        held, self._held = self._held, ""
        return text if self.stopped else text + held

    def _pass_on(self, new: str) -> str:
        if not self._stops:
            return new
        text = self._held + new
        found = min((place for stop in self._stops if (place := text.find(stop)) >= 0), default=None)
        if found is not None:
            self.stopped, self._held = True, ""
            return text[:found]
        keep = max(_overlap(text, stop) for stop in self._stops)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that `stop` begins with."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)
