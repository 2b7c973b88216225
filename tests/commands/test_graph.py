"""Walks as text and as Mermaid."""

from __future__ import annotations

import toy_catalogue

from mstar_plan.cli import main


def test_graph_as_text_and_as_mermaid(capsys) -> None:
    assert main(["graph", "toy", "--walk", "plan"]) == 0
    shown = capsys.readouterr().out
    assert "loop search x iterations" in shown
    assert "encode_goal [encode]" in shown
    assert main(["graph", "toy", "--mermaid"]) == 0
    assert capsys.readouterr().out.count("flowchart") >= 4


def test_a_family_is_drawn(capsys, monkeypatch):
    monkeypatch.setattr("mstar_plan.families.catalogue.FAMILIES", toy_catalogue.CATALOGUE)
    assert main(["graph", "writer"]) == 0
    assert "writing" in capsys.readouterr().out
