"""The table of what can be served."""

from __future__ import annotations

from mstar_plan.cli import main


def test_models(capsys) -> None:
    assert main(["models"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("toy", "reach", "wall", "push", "64 x 64"))
    assert shown.count("error") == shown.count("rank") == 3
