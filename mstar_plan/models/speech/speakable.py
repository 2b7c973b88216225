"""What can be said of a written text: marks of layout are dropped, and links and addresses become words."""

from __future__ import annotations

import re
import unicodedata

_LINK = re.compile(r"!?\[([^\[\]]{0,500})\]\([^()\s]{0,2000}\)")
_ADDRESS = re.compile(r"\bhttps?://(?:www\.)?([^\s/?#]{1,253})[^\s]*", re.IGNORECASE)
_TAG = re.compile(r"</?[A-Za-z][^<>]{0,80}>")
_LINE_START = re.compile(r"^\s*(?:(?:#{1,6}|>|[-*+•])\s+)+")
_RULE = re.compile(r"^[\s|:\-=*_~]+$")
_TIMES = re.compile(r"(?<=\d)\*(?=\d)")
_EMPHASIS = re.compile(r"\*+|~~+|`+|(?<!\w)_+(?=\S)|(?<=\S)_+(?!\w)")
_SPACE = re.compile(r"\s+")
_UNSAID = frozenset({"So", "Sk", "Cs", "Co", "Cn", "Cc", "Cf"})  # emoji, stray marks, what has no glyph


def speakable(text: str) -> str:
    """Returns one clause as it is to be read out; empty where there is nothing to say."""
    if _RULE.match(text):
        return ""
    text = _LINK.sub(r"\1", text)
    text = _ADDRESS.sub(_spoken_host, text)
    text = _TAG.sub(" ", text)
    text = _LINE_START.sub("", text)
    text = _TIMES.sub(" times ", text)
    text = _EMPHASIS.sub("", text).replace("_", " ").replace("|", ", ")
    kept = (c if c.isspace() or c == "°" or unicodedata.category(c) not in _UNSAID else " " for c in text)
    text = _SPACE.sub(" ", "".join(kept)).strip(" ,")
    return text if any(c.isalnum() for c in text) else ""


def _spoken_host(match: re.Match[str]) -> str:
    host, _, _ = match[1].partition(":")
    said = host.rstrip(".,;:!?)").replace(".", " dot ")
    return said + ("." if match[0][-1] in ".!?" else "")
