"""Clauses: sentences end where they should, nothing is lost, and the parts in which text comes do not matter."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mstar_plan.models.speech.clauses import LONGEST, Clause, Pending, split_clauses, take_clauses


def texts(text: str) -> list[str]:
    return [clause.text for clause in split_clauses(text)]


def in_parts(parts: list[str]) -> list[Clause]:
    pending, found = Pending(), []
    for part in parts:
        clauses, pending = take_clauses(pending, part)
        found += clauses
    clauses, pending = take_clauses(pending, "", ended=True)
    assert pending.text == ""
    return found + list(clauses)


@pytest.mark.parametrize(
    ("text", "clauses"),
    [
        ("Hello there. How are you?", ["Hello there.", "How are you?"]),
        ("Dr. Smith met J. K. Rowling. They talked.", ["Dr. Smith met J. K. Rowling.", "They talked."]),
        ("It costs $3.50, i.e. not much. Pi is 3.14.", ["It costs $3.50, i.e. not much.", "Pi is 3.14."]),
        ('"Stop!" he said. "Why?"', ['"Stop!" he said.', '"Why?"']),
        ("Wait... What?! No.", ["Wait...", "What?!", "No."]),
        ("It was me and I. Then it rained.", ["It was me and I.", "Then it rained."]),
        ("One line\nanother line\n\nlast", ["One line", "another line", "last"]),
        ("1. Buy milk.\n2. Go home.", ["1. Buy milk.", "2. Go home."]),
        ("It happened in 1990. Then it ended.", ["It happened in 1990.", "Then it ended."]),
        (
            "# Title\n\n**Bold** and _thin_ words.\n- first\n- second",
            ["Title", "Bold and thin words.", "first", "second"],
        ),
        ("Look:\n```python\nprint('x. Y')\n```\nDone.", ["Look:", "Done."]),
        ("See [the page](https://a.example/b.html?c=1). Good.", ["See the page.", "Good."]),
        ("**Note.** Next one.", ["Note.", "Next one."]),
        ("🙂 ... ---\n***\n", []),
        ("", []),
        ("no end", ["no end"]),
    ],
)
def test_a_text_falls_into_its_sentences(text: str, clauses: list[str]) -> None:
    assert texts(text) == clauses
    assert [clause.number for clause in split_clauses(text)] == list(range(len(clauses)))


def test_a_long_sentence_is_cut_at_a_comma_and_else_between_words() -> None:
    with_commas = "the first part is short, " * 30
    cut = texts(with_commas)
    assert all(part.endswith("short") for part in cut)
    without = " ".join(f"word{i}" for i in range(100))
    assert " ".join(texts(without)) == without
    endless = texts("x" * 1000)
    assert "".join(endless) == "x" * 1000
    assert max(map(len, [*cut, *texts(without), *endless])) <= LONGEST


@pytest.mark.parametrize("length", range(LONGEST - 3, LONGEST + 4))
def test_a_sentence_that_is_about_as_long_as_a_clause_may_be(length: int) -> None:
    sentence = ("word " * 100)[: length - 1].rstrip().ljust(length - 1, "x") + "."
    text = f"{sentence} Next one."
    assert in_parts(list(text)) == list(split_clauses(text))
    assert " ".join(texts(text)) == text


@pytest.mark.parametrize("length", [LONGEST - 1, LONGEST, LONGEST + 1, 2 * LONGEST])
def test_a_text_that_ends_where_a_clause_must(length: int) -> None:
    text = "x" * length
    assert in_parts(list(text)) == in_parts([text]) == list(split_clauses(text))
    assert "".join(texts(text)) == text


def test_a_sentence_is_known_as_soon_as_the_next_one_begins() -> None:
    clauses, pending = take_clauses(Pending(), "Hello there.")
    assert not clauses  # it may go on: 3. and 14
    clauses, pending = take_clauses(pending, " H")
    assert [clause.text for clause in clauses] == ["Hello there."]
    assert pending.text.strip() == "H"
    assert pending.number == 1


_WORDS = st.sampled_from(
    ["Hello", "there", "Dr.", "e.g.", "3.14", "I.", "end.", "what?", "no!", "(yes.)", '"so."', "**bold.**", "```", "1.",
     "\n", " ", "  ", "\n\n", "a,", "b;", "- item", "https://x.example/y.", "x" * 90, "🙂", "…", "\t"]
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(_WORDS, max_size=40).map(" ".join), st.integers(0, 2**32))
def test_the_parts_in_which_a_text_comes_do_not_matter(text: str, seed: int) -> None:
    rng, parts, rest = random.Random(seed), [], text
    while rest:
        size = rng.choice([1, 1, 2, 3, 7, 40, 300])
        parts.append(rest[:size])
        rest = rest[size:]
    assert in_parts(parts) == list(split_clauses(text))


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="ab .,!?\n", max_size=600))
def test_no_word_is_lost(text: str) -> None:
    spoken = "".join(c for clause in split_clauses(text) for c in clause.text if c.isalnum())
    assert spoken == "".join(c for c in text if c.isalnum())
