"""Closed-loop episodes with every controller, and the report that they leave."""

from __future__ import annotations

import json

import pytest

from mstar_plan.cli import main

REPORT_FIELDS = {
    "env", "model", "planner", "controller", "episodes", "seed", "success_rate", "success_ci95", "success_any_rate",
    "final_distance_mean", "plan_ms", "control_hz", "machine", "versions",
}  # fmt: skip


@pytest.mark.render
@pytest.mark.parametrize("controller", ["grpc", "local", "random", "noop", "oracle"])
def test_evaluate_reports(controller, tmp_path) -> None:
    words = [f"controller={controller}", "env=wall", "episodes=2", "seed=7", f"out={tmp_path}"]
    assert main(["evaluate", *words]) == 0
    report = json.loads((tmp_path / "report.json").read_text())
    assert set(report) >= REPORT_FIELDS
    assert (report["controller"], report["env"], report["episodes"], report["seed"]) == (controller, "wall", 2, 7)
    assert set(report["plan_ms"]) >= {"p50", "p95", "p99", "max"}
    assert (tmp_path / "report.html").read_text().lstrip().startswith("<!")
    if controller in ("grpc", "local", "oracle"):
        assert report["success_rate"] == 1.0
    if controller == "noop":
        assert report["success_rate"] == 0.0
