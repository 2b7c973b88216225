"""The demo: one server, several robots, videos and one report."""

from __future__ import annotations

import json

import pytest

from mstar_plan.cli import main


@pytest.mark.render
def test_demo(tmp_path, capsys) -> None:
    assert main(["demo", "tasks=[reach,push]", "episodes=1", f"out={tmp_path}"]) == 0
    shown = capsys.readouterr().out
    assert "Next:" in shown
    assert {p.name for p in tmp_path.glob("*.mp4")} == {"reach-grpc.mp4", "push-grpc.mp4"}
    reports = json.loads((tmp_path / "report.json").read_text())["reports"]
    assert [(r["env"], r["controller"]) for r in reports] == [
        ("reach", "grpc"), ("push", "grpc"), ("reach", "random"), ("push", "random"),
    ]  # fmt: skip
    assert "reach-grpc.mp4" in (tmp_path / "report.html").read_text()
