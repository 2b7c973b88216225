"""Speakable text: layout is dropped, words are kept."""

from __future__ import annotations

import pytest

from mstar_plan.models.speech.speakable import speakable


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("**3** of *4*", "3 of 4"),
        ("**Very** `nice` and ~~not~~ *so* _bad_", "Very nice and not so bad"),
        ("## A title", "A title"),
        ("> - quoted item", "quoted item"),
        ("a [link](http://x.example/a) and ![a picture](b.png)", "a link and a picture"),
        ("Visit https://www.example.com/path?q=1 now", "Visit example dot com now"),
        ("Go to http://example.org.", "Go to example dot org."),
        ("line<br/>break", "line break"),
        ("2 < 3 and 5 > 4", "2 < 3 and 5 > 4"),
        ("snake_case_name", "snake case name"),
        ("| a | b |", "a , b"),
        ("|---|:--|", ""),
        ("-----", ""),
        ("...", ""),
        ("Hi 🙂!", "Hi !"),
        ("21 °C and 3*4", "21 °C and 3 times 4"),
        ("it's  well-known", "it's well-known"),
        ("naïve café", "naïve café"),
        ("tab\tand\x00null", "tab and null"),
    ],
)
def test_layout_is_dropped_and_words_are_kept(text: str, said: str) -> None:
    assert speakable(text) == said
