"""Byte-level tokenizers: round trips, special tokens as tokens or as text, damaged files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_llama import END, SPECIAL, START, vocabulary

from mstar_plan.errors import InvalidInputError, WeightsError
from mstar_plan.models.llama.vocabulary import BpeVocabulary

VOCABULARY = vocabulary()


@given(st.text(max_size=40))
def test_text_comes_back(text: str) -> None:
    assert VOCABULARY.decode(VOCABULARY.encode(text, literal=True)) == text


@given(st.text(max_size=20))
def test_token_by_token_is_the_same_text(text: str) -> None:
    reader = VOCABULARY.reader()
    out = "".join(reader.step(token) for token in VOCABULARY.encode(text, literal=True))
    assert out + reader.rest() == text


def test_special_tokens_are_tokens_unless_they_are_said_to_be_text() -> None:
    assert VOCABULARY.encode(f"a{SPECIAL[0]}") == [*VOCABULARY.encode("a"), END]
    literal = VOCABULARY.encode(f"a{SPECIAL[0]}", literal=True)
    assert END not in literal
    assert VOCABULARY.decode(literal) == f"a{SPECIAL[0]}"
    assert VOCABULARY.has_special(f"x{SPECIAL[1]}y")
    assert not VOCABULARY.has_special("<|en|>")
    assert VOCABULARY.decode([START, END]) == ""
    assert VOCABULARY.text_of(END) == SPECIAL[0]


def test_ids_are_checked() -> None:
    with pytest.raises(InvalidInputError, match="token 258"):
        VOCABULARY.decode([258])


def test_a_published_file(tmp_path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(VOCABULARY.json())
    assert BpeVocabulary.from_file(path, ends=[END]).encode("hé") == VOCABULARY.encode("hé")
    path.write_text("{")
    with pytest.raises(WeightsError, match="damaged"):
        BpeVocabulary.from_file(path, ends=[END])
    with pytest.raises(WeightsError, match="not there"):
        BpeVocabulary.from_file(tmp_path / "none.json", ends=[END])


@pytest.mark.parametrize("ends", [[], [999]])
def test_an_end_is_needed(ends: list[int]) -> None:
    with pytest.raises(WeightsError, match="ending tokens"):
        BpeVocabulary.of(["a"], [], [], ends=ends)
