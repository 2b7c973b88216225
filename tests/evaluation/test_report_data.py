"""The numbers of report.json against values computed by hand."""

import json

import pytest

from mstar_plan.evaluation.report_data import report_json


def test_every_field_of_the_contract(result, report):
    solved, left = (
        result(seed=3, plan_ms=(10.0, 20.0)),
        result(seed=4, distances=(0.3, 0.01, 0.2), plan_ms=(30.0, 40.0)),
    )
    numbers = report_json(report(solved, left, seed=3, versions={"numpy": "2"}))
    assert json.loads(json.dumps(numbers, allow_nan=False)) == numbers
    assert (numbers["env"], numbers["model"], numbers["planner"], numbers["controller"]) == (
        "line",
        "line",
        "cem",
        "grpc",
    )
    assert (numbers["episodes"], numbers["seed"]) == (2, 3)
    assert (numbers["success_rate"], numbers["success_any_rate"]) == (0.5, 1.0)
    assert numbers["success_ci95"] == pytest.approx([0.0945, 0.9055], abs=1e-4)
    assert numbers["final_distance_mean"] == pytest.approx(0.105)
    assert numbers["plan_ms"] == pytest.approx({"p50": 25, "p95": 38.5, "p99": 39.7, "max": 40})
    assert numbers["control_hz"] == pytest.approx(4 / 1.0)
    assert numbers["plan_status"] == {"complete": 4}
    assert numbers["machine"]["cpu"] == "Test CPU"
    assert numbers["versions"] == {"numpy": "2"}
    assert [row["seed"] for row in numbers["per_episode"]] == [3, 4]
    assert numbers["per_episode"][1]["least_distance"] == pytest.approx(0.01)
    assert numbers["per_episode"][1]["distances"] == pytest.approx([0.3, 0.01, 0.2])


def test_held_steps_do_not_count_as_control(result, report):
    numbers = report_json(report(result(late=1), real_time=True))
    assert numbers["late_steps"] == 1
    assert numbers["control_hz"] == pytest.approx(1 / 0.5)


def test_no_plan_times_are_null(result, report):
    numbers = report_json(report(result(plan_ms=())))
    assert numbers["plan_ms"] == {"p50": None, "p95": None, "p99": None, "max": None}
    assert numbers["per_episode"][0]["plan_ms_p50"] is None
    json.dumps(numbers, allow_nan=False)
