"""Byte-level tokenizers: round trips, special tokens as tokens or as text, damaged files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_llama import END, SPECIAL, START, vocabulary
from tokenizers import Tokenizer, pre_tokenizers, processors

from mstar_plan.errors import InvalidInputError, WeightsError
from mstar_plan.models.llama.vocabulary import BpeVocabulary

VOCABULARY = vocabulary()
# GPT-2's letters for bytes: what prints stands for itself, the others for letters from 256 on, in order.
PRINTED = [*range(33, 127), *range(161, 173), *range(174, 256)]
OTHERS = [byte for byte in range(256) if byte not in PRINTED]
BYTES = {byte: chr(byte) for byte in PRINTED} | {byte: chr(256 + i) for i, byte in enumerate(OTHERS)}


@given(st.text(max_size=40))
def test_text_comes_back(text: str) -> None:
    assert VOCABULARY.decode(VOCABULARY.encode(text, literal=True)) == text


@given(st.text(max_size=20))
def test_token_by_token_is_the_same_text(text: str) -> None:
    reader = VOCABULARY.reader()
    out = "".join(reader.step(token) for token in VOCABULARY.encode(text, literal=True))
    assert out + reader.rest() == text


@given(st.binary(max_size=24))
def test_any_bytes_become_the_text_that_they_are(written: bytes) -> None:
    """A model may write bytes that are no text: they are the same one by one as all at once."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = [len(SPECIAL) + letters.index(BYTES[byte]) for byte in written]
    reader = VOCABULARY.reader()
    out = "".join(reader.step(token) for token in tokens) + reader.rest()
    assert out == VOCABULARY.decode(tokens) == written.decode(errors="replace")


def test_special_tokens_are_tokens_unless_they_are_said_to_be_text() -> None:
    assert VOCABULARY.encode(f"a{SPECIAL[0]}") == [*VOCABULARY.encode("a"), END]
    literal = VOCABULARY.encode(f"a{SPECIAL[0]}", literal=True)
    assert END not in literal
    assert VOCABULARY.decode(literal) == f"a{SPECIAL[0]}"
    assert VOCABULARY.special == SPECIAL
    assert VOCABULARY.decode([START, END]) == ""
    assert VOCABULARY.text_of(END) == SPECIAL[0]


def test_ids_are_checked() -> None:
    with pytest.raises(InvalidInputError, match="token 258"):
        VOCABULARY.decode([258])


def test_a_published_file(tmp_path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(VOCABULARY.json())
    assert BpeVocabulary.from_file(path, ends=[END]).encode("hé") == VOCABULARY.encode("hé")
    assert BpeVocabulary.from_file(path, ends=[END]).start is None
    assert BpeVocabulary.from_file(path, ends=[END], start=START).start == START
    published = Tokenizer.from_file(str(path))
    published.post_processor = processors.TemplateProcessing(f"{SPECIAL[1]} $A", None, [(SPECIAL[1], START)])
    published.save(str(path))
    assert BpeVocabulary.from_file(path, ends=[END]).start == START
    published.post_processor = processors.TemplateProcessing(f"$A {SPECIAL[0]}", None, [(SPECIAL[0], END)])
    published.save(str(path))
    assert BpeVocabulary.from_file(path, ends=[END]).start is None
    path.write_text("{")
    with pytest.raises(WeightsError, match="damaged"):
        BpeVocabulary.from_file(path, ends=[END])
    with pytest.raises(WeightsError, match="not there"):
        BpeVocabulary.from_file(tmp_path / "none.json", ends=[END])


@pytest.mark.parametrize("ends", [[], [999]])
def test_an_end_is_needed(ends: list[int]) -> None:
    with pytest.raises(WeightsError, match="ending tokens"):
        BpeVocabulary.of(["a"], [], [], ends=ends)
