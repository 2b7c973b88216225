"""Runs the code of a Markdown page: Python blocks one after the other, each followed by what it prints, if anything."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[2] / "docs"
_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)


def run_page(name: str, **given: Any) -> dict[str, Any]:
    """Runs docs/NAME with the names `given`, checks every printed block, and returns the names that were defined."""
    page = (DOCS / name).read_text()
    names: dict[str, Any] = {"__name__": "page", **given}
    printed: str | None = None
    for fence in _FENCE.finditer(page):
        language, text = fence.groups()
        where = f"{name}, line {page.count(chr(10), 0, fence.start()) + 1}"
        if language == "python":
            assert not printed, f"{where}: the block before prints, but the page does not show it:\n{printed}"
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(text, where, "exec"), names)
            printed = out.getvalue()
        elif printed:
            assert text.rstrip() == printed.rstrip(), f"{where}: the page shows\n{text}\nbut the code prints\n{printed}"
            printed = None
    assert not printed, f"{name}: the last block prints, but the page does not show it:\n{printed}"
    return names
