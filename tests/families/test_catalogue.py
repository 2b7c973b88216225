"""The catalogue: near misses, missing packages, and families that other packages add."""

from __future__ import annotations

import sys

import pytest

from mstar_plan.errors import NotFoundError, UnavailableError
from mstar_plan.families import catalogue
from mstar_plan.families.catalogue import FAMILIES, Entry, families, load_family


def test_every_loader_is_there() -> None:
    for name, entry in FAMILIES.items():
        module, _, function = entry.loader.partition(":")
        assert callable(getattr(__import__(module, fromlist=[function]), function)), name
        assert entry.description.endswith(".")


def test_near_misses_are_told() -> None:
    with pytest.raises(NotFoundError, match="did you mean 'smollm2'"):
        load_family("smolm2")


@pytest.mark.parametrize(("needs", "cure"), [("assistant", r"mstar-plan\[assistant\]"), ("", "pip install no_such")])
def test_a_missing_package_is_named_with_its_cure(monkeypatch: pytest.MonkeyPatch, needs: str, cure: str) -> None:
    monkeypatch.setattr(catalogue, "FAMILIES", {"x": Entry("no_such_package:load", "X.", needs)})
    with pytest.raises(UnavailableError, match=cure):
        load_family("x")


def test_other_packages_add_theirs(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "added-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: added\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[mstar_plan.families]\nhum = toy_catalogue:load_hummer\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert families()["hum"].description == "Of the package added."
    assert load_family("hum").abilities == ("speech",)
    assert "hum" not in FAMILIES
