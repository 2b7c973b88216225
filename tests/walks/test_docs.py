"""The page on walks: its code runs and prints what the page shows."""

from __future__ import annotations

from doc_blocks import run_page


def test_the_code_of_the_page_runs_and_prints_what_it_shows() -> None:
    names = run_page("walks.md")
    assert {"search", "graph", "talk"} <= names.keys()
