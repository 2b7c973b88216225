"""Cuts text into clauses to speak, as it comes in: however it was handed over, the clauses are the same."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mstar_plan.models.speech.speakable import speakable

LONGEST = 240  # characters of one clause; about 16 s of speech
SHORTEST_CUT = 80  # a long sentence is not cut before this
_CLOSERS = "\"')]*_\u201d\u2019"  # what may stand between a mark and the space behind it
_OPENERS = "\"'([*_\u201c\u2018"
_BOUNDARY = re.compile(rf"\n|[.!?…]+[{re.escape(_CLOSERS)}]*(?=\s)")
_PAUSE = re.compile(rf"[,;:\u2014\u2013][{re.escape(_CLOSERS)}]*(?=\s)")
_TITLES = frozenset(
    {
        "mr", "mrs", "ms", "dr", "prof", "st", "sr", "jr", "rev", "gen", "col", "capt", "lt", "sgt", "hon", "vs", "e.g",
        "i.e", "eg", "ie", "fig", "figs", "approx", "dept", "vol", "cf", "mt",
    }
)  # fmt: skip
_NUMBER = re.compile(r"[\s>#*+-]*(?:\d{1,4}|[A-Za-z])\.")  # of a list
_FENCE = "```"


@dataclass(frozen=True)
class Pending:
    """Where a text stands between two parts of it.

    Attributes:
        text: What belongs to no clause yet.
        code: It is inside a block of code, which is not spoken.
        number: Clauses so far.
    """

    text: str = ""
    code: bool = False
    number: int = 0


@dataclass(frozen=True)
class Clause:
    """A speakable part of a text, and its number in it, from 0."""

    number: int
    text: str


def take_clauses(pending: Pending, text: str, *, ended: bool = False) -> tuple[tuple[Clause, ...], Pending]:
    """Returns the clauses that are known now, and what is left.

    A clause is a sentence or a line. What is longer than `LONGEST` is cut at its last comma, or else between words.

    Args:
        pending: What was left before.
        text: What has come in.
        ended: Nothing more will come; then nothing is left.
    """
    rest, code, number = pending.text + text, pending.code, pending.number
    found: list[Clause] = []
    while rest:
        end = _cut(rest, ended)
        if end is None:
            break
        piece, rest = rest[:end], rest[end:]
        mark = piece.strip()
        if mark.startswith(_FENCE):
            code = code if _FENCE in mark[len(_FENCE) :] else not code
            continue
        said = "" if code else speakable(piece)
        if said:
            found.append(Clause(number, said))
            number += 1
    return tuple(found), Pending(rest, code, number)


def split_clauses(text: str) -> tuple[Clause, ...]:
    """Returns the clauses of a whole text."""
    return take_clauses(Pending(), text, ended=True)[0]


def _cut(text: str, ended: bool) -> int | None:
    """Where the first clause ends; None while that is not known.

    It looks at the first `LONGEST` characters and the first visible one after a full stop only, so that what it finds
    cannot change when more comes in.
    """
    window = text[:LONGEST]
    for match in _BOUNDARY.finditer(window):
        if match[0] == "\n":
            return match.end()
        following = text[match.end() :].lstrip(" \t\r")
        if not following and not ended:
            return None
        if _ends(window, match, following):
            return match.end()
    if len(text) <= LONGEST:
        return len(text) if ended else None
    pauses = [match.end() for match in _PAUSE.finditer(window) if match.end() >= SHORTEST_CUT]
    spaces = [place for place in range(SHORTEST_CUT, len(window)) if window[place].isspace()]
    return (pauses or spaces or [LONGEST])[-1]


def _ends(window: str, match: re.Match[str], following: str) -> bool:
    """False for a full stop after a title, an initial or a list's number, and for any mark before a small letter."""
    if following and following[0].islower():
        return False
    if match[0][0] != "." or len(match[0].rstrip(_CLOSERS)) > 1:
        return True
    before = window[: match.start()]
    word = re.split(rf"[\s{re.escape(_OPENERS)}]", before)[-1]
    if word.lower() in _TITLES or (len(word) == 1 and word.isupper() and word != "I"):
        return False
    return not _NUMBER.fullmatch(before.lstrip() + ".")
