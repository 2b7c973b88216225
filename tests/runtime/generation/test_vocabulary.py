"""The text of an answer: stop texts may lie across tokens, and nothing of them gets out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_llama import vocabulary

from mstar_plan.runtime.generation.vocabulary import AnswerText


class Letters:
    """A reader whose tokens are characters."""

    def step(self, token: int) -> str:
        return chr(token)

    def rest(self) -> str:
        return ""


def through(text: str, stops: list[str]) -> tuple[str, bool]:
    answer, out = AnswerText(Letters(), stops), ""
    for letter in text:
        out += answer.add(ord(letter))
        if answer.stopped:
            break
    return out + answer.end(), answer.stopped


@pytest.mark.parametrize(
    ("text", "stops", "out", "stopped"),
    [
        ("one two", [], "one two", False),
        ("one two", ["two"], "one ", True),
        ("one two", ["twox"], "one two", False),
        ("aab", ["ab"], "a", True),
        ("ababac", ["abac"], "ab", True),
        ("x\n\ny", ["\n\n", "y"], "x", True),
    ],
)
def test_stop_texts(text: str, stops: list[str], out: str, stopped: bool) -> None:
    assert through(text, stops) == (out, stopped)


@given(st.text("ab", max_size=12), st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3))
def test_it_ends_before_the_first_stop(text: str, stops: list[str]) -> None:
    # the first stop that is complete when read letter by letter
    ends = [(text.find(stop) + len(stop), text.find(stop)) for stop in stops if stop in text]
    out, stopped = through(text, stops)
    assert stopped == bool(ends)
    if ends:
        first = min(end for end, _ in ends)
        assert out == text[: min(start for end, start in ends if end == first)]
    else:
        assert out == text


def test_what_may_be_a_stop_is_held_back() -> None:
    answer = AnswerText(Letters(), ["stop"])
    assert [answer.add(ord(letter)) for letter in "xsto"] == ["x", "", "", ""]
    assert answer.add(ord("!")) == "sto!"


def test_an_incomplete_character_comes_at_the_end() -> None:
    made = vocabulary()
    tokens = made.encode("é")
    answer = AnswerText(made.reader())
    assert [answer.add(token) for token in tokens] == ["", "é"]
    cut = AnswerText(made.reader())
    assert cut.add(tokens[0]) == ""
    assert cut.end() == "\ufffd"
