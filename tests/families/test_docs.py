"""The family of docs/adding_a_model.md runs and is served, and docs/models.md knows every name of the catalogue."""

from __future__ import annotations

from doc_blocks import DOCS, run_page

from mstar_plan.families.catalogue import FAMILIES


def test_the_page_runs():
    run_page("adding_a_model.md")


def test_every_family_is_documented():
    page = (DOCS / "models.md").read_text()
    assert [name for name in FAMILIES if f"`{name}`" not in page] == []
