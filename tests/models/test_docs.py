"""The examples of docs/models.md run, and its parity table names every case."""

from __future__ import annotations

from doc_blocks import DOCS, run_page


def test_the_examples_run(monkeypatch) -> None:
    monkeypatch.chdir(DOCS.parent)
    names = run_page("models.md")
    assert names["model"].spec.image_size == (32, 32)


def test_every_case_is_in_the_table() -> None:
    page = (DOCS / "models.md").read_text()
    for case in (DOCS.parent / "tests" / "golden").glob("vjepa2_*/case.json"):
        assert f"| `{case.parent.name}`" in page
