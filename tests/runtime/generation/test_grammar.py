"""Grammars: only tokens that may come next are left, and a schema is kept to the end."""

from __future__ import annotations

import pytest
import torch
from tiny_llama import END, START, vocabulary

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


def test_white_space_of_json_is_bounded(grammars: Grammars) -> None:
    grammar, space = grammars.of_schema(SCHEMA), vocabulary().encode(" ")[0]
    grammar.accept(vocabulary().encode("{")[0])
    taken = 0
    while " " in allowed(grammar):
        grammar.accept(space)
        taken += 1
        assert taken < 100
    assert taken > 1


def test_any_of_the_ends_may_end(grammars: Grammars) -> None:
    made = vocabulary(ends=(END, START))
    grammar = Grammars(made).of_lark('start: "a"')
    grammar.accept(made.encode("a")[0])
    masked = grammar.mask(torch.zeros(made.size))
    assert (masked == 0).nonzero()[:, 0].tolist() == [END, START]


@pytest.mark.parametrize("rows", [300, 200])
def test_a_model_may_have_other_rows_than_the_tokenizer_has_tokens(grammars: Grammars, rows: int) -> None:
    masked = grammars.of_lark('start: "a"').mask(torch.zeros(rows))
    assert (masked == 0).nonzero()[:, 0].tolist() == vocabulary().encode("a")


def test_what_is_nested_too_deep_is_refused_in_few_words(grammars: Grammars) -> None:
    schema: dict = {"type": "integer"}
    for _ in range(3000):
        schema = {"type": "array", "items": schema}
    with pytest.raises(InvalidInputError, match="json_schema cannot be used") as caught:
        grammars.of_schema(schema)
    assert caught.value.field == "json_schema"
    with pytest.raises(InvalidInputError, match="grammar cannot be used") as caught:
        grammars.of_lark("start: " + "(" * 20_000 + '"a"' + ")" * 20_000)
    assert len(str(caught.value)) < 1000


def test_grammars_that_are_none(grammars: Grammars) -> None:
    with pytest.raises(InvalidInputError, match="grammar cannot be used"):
        grammars.of_lark("start: (")
    with pytest.raises(InvalidInputError, match="at most"):
        grammars.of_lark("x" * 100_000)
