"""Answers that must fit a JSON schema or a grammar: which tokens may come next, by the llguidance library."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import llguidance
import numpy as np
import torch
from torch import Tensor

from mstar_plan.errors import ComponentError, InvalidInputError
from mstar_plan.runtime.generation.vocabulary import Vocabulary

MAX_GRAMMAR = 64 * 1024  # characters
MOST_SAID = 400  # characters of the library's complaint, which quotes the grammar
JSON = {"whitespace_pattern": r"[ \n\r\t]{0,32}"}  # bounded: a small model would write white space for ever


class Grammars:
    """Makes grammars for one vocabulary; its tokens are analysed once."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._tokens = llguidance.LLTokenizer(vocabulary.json(), vocabulary.size, sorted(vocabulary.ends))
        self._size = vocabulary.size

    def of_schema(self, schema: Mapping[str, Any]) -> Grammar:
        """JSON that fits a schema; {} is any JSON object.

        Raises:
            InvalidInputError: It is no schema, too long, or uses what is not supported.
        """
        try:
            text = json.dumps(schema or {"type": "object"})
            _check_length(text, "json_schema")
            return self._made(llguidance.LLMatcher.grammar_from_json_schema(text, defaults=JSON), "json_schema")
        except (ValueError, TypeError, RecursionError) as error:
            raise _unusable("json_schema", error) from error

    def of_lark(self, grammar: str) -> Grammar:
        """Text that fits a Lark grammar.

        Raises:
            InvalidInputError: It is no grammar, or too long.
        """
        _check_length(grammar, "grammar")
        try:
            return self._made(llguidance.LLMatcher.grammar_from_lark(grammar), "grammar")
        except ValueError as error:
            raise _unusable("grammar", error) from error

    def _made(self, grammar: str, field: str) -> Grammar:
        matcher = llguidance.LLMatcher(self._tokens, grammar, log_level=0)
        if matcher.is_error():
            raise _unusable(field, matcher.get_error())
        return Grammar(matcher, self._size)


class Grammar:
    """Where one answer stands in its grammar."""

    def __init__(self, matcher: Any, size: int) -> None:
        self._matcher, self._size = matcher, size

    @property
    def complete(self) -> bool:
        """Nothing may follow."""
        return bool(self._matcher.is_stopped())

    def mask(self, logits_V: Tensor) -> Tensor:
        """The logits with -inf where a token may not come next."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        allowed = np.zeros(len(logits_V), np.bool_)  # models may have more rows than their tokenizer has tokens
        known = min(self._size, len(logits_V))
        allowed[:known] = np.unpackbits(bits, count=known, bitorder="little")
        return logits_V.masked_fill(~torch.from_numpy(allowed).to(logits_V.device), -torch.inf)

    def accept(self, token: int) -> None:
        """Goes on by a token.

        Raises:
            ComponentError: It does not fit.
        """
        if not self._matcher.consume_token(token):
            raise ComponentError(f"token {token} does not fit the grammar: {self._matcher.get_error()}")

    def copy(self) -> Grammar:
        """Another answer that stands at the same place."""
        return Grammar(self._matcher.deep_copy(), self._size)


def _unusable(field: str, why: object) -> InvalidInputError:
    text = str(why)
    return InvalidInputError(f"{field} cannot be used: {text[:MOST_SAID]}", field=field)


def _check_length(text: str, field: str) -> None:
    if len(text) > MAX_GRAMMAR:
        raise InvalidInputError(f"{field} has {len(text)} characters; at most {MAX_GRAMMAR} are taken", field=field)
