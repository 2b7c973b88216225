"""Byte-level BPE tokenizers, of the `tokenizers` library, as language models use them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from mstar_plan.errors import InvalidInputError, WeightsError

MAX_FILE_BYTES = 64 * 2**20


class BpeVocabulary:
    """A tokenizer with the tokens that end an answer.

    Args:
        tokenizer: Of the library.
        ends: Ids of the tokens that end an answer.
        start: Id of the token that every prompt begins with; None for none.

    Attributes:
        special: Texts of the special tokens.
    """

    def __init__(self, tokenizer: Tokenizer, *, ends: Iterable[int], start: int | None = None) -> None:
        self._tokenizer = tokenizer
        self._literal = Tokenizer.from_str(tokenizer.to_str())  # reads special tokens as the text that they are
        self._literal.encode_special_tokens = True
        self.size: int = tokenizer.get_vocab_size()
        self.ends = frozenset(ends)
        self.start = start
        self.special = tuple(token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special)
        if not self.ends or not all(0 <= end < self.size for end in self.ends):
            raise WeightsError(f"the ending tokens are {sorted(self.ends)}, of {self.size}", field="tokenizer")

    @staticmethod
    def of(
        tokens: Sequence[str],
        merges: Sequence[Any],
        special: Sequence[str],
        *,
        ends: Iterable[int],
        start: int | None = None,
        split_digits: bool = False,
    ) -> BpeVocabulary:
        """Builds one.

        Args:
            tokens: By id, in the byte alphabet of GPT-2.
            merges: Pairs, first ones first.
            special: Tokens that are recognised whole, and are no text.
            ends: Ids that end an answer.
            start: Id that every prompt begins with; None for none.
            split_digits: Digits are pieces of their own.

        Raises:
            WeightsError: They do not fit together.
        """
        try:
            tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, list(merges)))
        except Exception as error:  # the library raises bare exceptions
            raise WeightsError(f"the tokenizer is damaged: {error}", field="tokenizer") from error
        bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False)
        digits = pre_tokenizers.Digits(individual_digits=True)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, bytes_]) if split_digits else bytes_
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
        return BpeVocabulary(tokenizer, ends=ends, start=start)

    @staticmethod
    def from_file(path: Path, *, ends: Iterable[int], start: int | None = None) -> BpeVocabulary:
        """Reads a published `tokenizer.json`.

        Args:
            path: The file.
            ends: Ids that end an answer.
            start: Id that every prompt begins with; None: what the file itself puts before a text, if anything.

        Raises:
            WeightsError: It is absent, too large or damaged.
        """
        if not path.is_file() or path.stat().st_size > MAX_FILE_BYTES:
            raise WeightsError(f"{path} is not there, or over {MAX_FILE_BYTES} bytes", field="tokenizer")
        try:
            tokenizer = Tokenizer.from_str(path.read_text(encoding="utf-8"))
        except Exception as error:  # the library raises bare exceptions
            raise WeightsError(f"{path} is damaged: {error}", field="tokenizer") from error
        return BpeVocabulary(tokenizer, ends=ends, start=_own_start(tokenizer) if start is None else start)

    def encode(self, text: str, *, literal: bool = False) -> list[int]:
        """Ids of a text.

        Args:
            text: The text; `<|...|>` of special tokens in it are these tokens.
            literal: Special tokens are not recognised: for text that a stranger wrote.
        """
        ids: list[int] = (self._literal if literal else self._tokenizer).encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids; special tokens have none.

        Raises:
            InvalidInputError: An id is not in the vocabulary.
        """
        self.check(ids)
        text: str = self._tokenizer.decode(list(ids))
        return text

    def check(self, ids: Sequence[int]) -> None:
        """Raises InvalidInputError where an id is not in the vocabulary."""
        wrong = next((i for i in ids if not 0 <= i < self.size), None)
        if wrong is not None:
            raise InvalidInputError(f"token {wrong} is not in the vocabulary; use 0 to {self.size - 1}", field="prompt")

    def text_of(self, token: int) -> str:
        """One token by itself, special ones too; parts of characters are U+FFFD."""
        text: str = self._tokenizer.decode([token], skip_special_tokens=False)
        return text

    def reader(self) -> _Reader:
        """Turns one answer's tokens into text."""
        return _Reader(self._tokenizer)

    def json(self) -> str:
        """The tokenizer's own description."""
        text: str = self._tokenizer.to_str()
        return text


def _own_start(tokenizer: Tokenizer) -> int | None:
    """The special token that a tokenizer puts before a text by itself."""
    plain, whole = (tokenizer.encode("a", add_special_tokens=special).ids for special in (False, True))
    return int(whole[0]) if len(whole) > len(plain) and whole[: len(plain)] != plain else None


class _Reader:
    """See `TokenReader`: the library holds back what is not a whole character yet."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._stream = decoders.DecodeStream(skip_special_tokens=True)
        self._open: list[int] = []

    def step(self, token: int) -> str:
        self._open.append(token)
        text: str | None = self._stream.step(self._tokenizer, token)
        if text is None:
            return ""
        self._open.clear()
        return text

    def rest(self) -> str:
        tokens, self._open = self._open, []
        text: str = self._tokenizer.decode(tokens)
        return text
