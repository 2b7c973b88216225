"""The table of what can be served."""

from __future__ import annotations

from mstar_plan.cli import main


def test_models(capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")  # no word is cut
    assert main(["models"]) == 0
    shown = capsys.readouterr().out
    assert "vjepa2_wall needs: frame_hz 10; frame_order oldest_first; frame_copies 2" in shown
    assert "reach needs" not in shown.replace("vjepa2_reach needs", "")
    assert all(name in shown for name in ("toy", "reach", "wall", "push", "64 x 64"))
    assert shown.count("error ") == shown.count(", rank ") == 6


def test_families_are_listed_with_what_they_need(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    assert main(["models"]) == 0
    shown = capsys.readouterr().out
    assert "smollm2" in shown
    assert "mstar-plan[language]" in shown
