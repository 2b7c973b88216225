"""Closed-loop episodes of a policy, alone and judged, and the report that they leave."""

from __future__ import annotations

import json

import pytest

from mstar_plan.cli import main


@pytest.mark.render
@pytest.mark.parametrize("controller", ["policy", "rerank", "refine"])
def test_evaluate_reports(controller, tmp_path) -> None:
    words = ["policy.proposals=8", "policy.iterations=1", "episodes=2", "seed=7", f"out={tmp_path}"]
    assert main(["evaluate", f"controller={controller}", "env=reach", *words]) == 0
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["controller"], report["model"], report["planner"]) == (controller, "flow_reach", controller)
    assert report["success_rate"] == 1.0
    wanted = {"policy": set(), "rerank": {"proposals"}, "refine": {"proposals", "iterations", "samples"}}
    assert report["settings"].keys() == wanted[controller] | {"steps", "weights"}
    if controller != "policy":
        assert report["settings"]["proposals"] == 8


def test_mistakes_are_told(capsys) -> None:
    assert main(["evaluate", "controller=rerank", "policy.proposals=0"]) != 0
    assert "proposals is 0" in capsys.readouterr().err
    assert main(["evaluate", "controller=rerank", "policy.proposal=4"]) != 0
    assert "did you mean 'proposals'" in capsys.readouterr().err
    assert main(["evaluate", "controller=rerank", "env=wall", "episodes=1"]) != 0
    assert "mstar-plan train env=flow_wall" in capsys.readouterr().err
