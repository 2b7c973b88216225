"""Grammars: only tokens that may come next are left, and a schema is kept to the end."""

from __future__ import annotations

import pytest
import torch
from tiny_llama import END, vocabulary

from mstar_plan.errors import ComponentError, InvalidInputError
from mstar_plan.runtime.generation.grammar import Grammars

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}


@pytest.fixture(scope="module")
def grammars() -> Grammars:
    return Grammars(vocabulary())


def allowed(grammar) -> str:
    masked = grammar.mask(torch.zeros(vocabulary().size))
    ids = (masked == 0).nonzero()[:, 0].tolist()
    return "".join("$" if token == END else vocabulary().text_of(token) for token in ids)


def test_a_lark_grammar_leaves_its_letters(grammars: Grammars) -> None:
    grammar = grammars.of_lark('start: "ab" | "ac"')
    assert allowed(grammar) == "a"
    grammar.accept(vocabulary().encode("a")[0])
    assert sorted(allowed(grammar)) == ["b", "c"]
    other = grammar.copy()
    other.accept(vocabulary().encode("c")[0])
    assert sorted(allowed(grammar)) == ["b", "c"]
    assert allowed(other) == "$"
    other.accept(END)
    assert other.complete


def test_a_schema_is_followed(grammars: Grammars) -> None:
    grammar = grammars.of_schema(SCHEMA)
    for token in vocabulary().encode('{"a":12}'):
        assert vocabulary().text_of(token) in allowed(grammar)
        grammar.accept(token)
    with pytest.raises(ComponentError, match="does not fit"):
        grammar.accept(vocabulary().encode("x")[0])


@pytest.mark.parametrize("schema", [{"type": "nothing"}, {"$ref": "http://x/y"}])
def test_schemas_that_are_none(grammars: Grammars, schema: dict) -> None:
    with pytest.raises(InvalidInputError, match="json_schema cannot be used"):
        grammars.of_schema(schema)


def test_grammars_that_are_none(grammars: Grammars) -> None:
    with pytest.raises(InvalidInputError, match="grammar cannot be used"):
        grammars.of_lark("start: (")
    with pytest.raises(InvalidInputError, match="at most"):
        grammars.of_lark("x" * 100_000)
