"""The doctor names what is wrong, with a cure, and tells what is essential from what is not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mstar_plan import doctor
from mstar_plan.commands.doctor import doctor as command
from mstar_plan.doctor import Finding, Verdict

HEALTHY: Mapping[str, Mapping[str, Any]] = {
    "torch": {"version": "2.13", "device": "cpu", "threads": 2},
    "mujoco": {"red": 200, "ms": 0.3, "renderer": "llvmpipe"},
    "imageio_ffmpeg": {"ffmpeg": "7.1"},
}


@pytest.fixture(autouse=True)
def _set_up_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")
    monkeypatch.setenv("MUJOCO_GL", "egl")


def answering(answers: Mapping[str, Mapping[str, Any]]) -> doctor.Probe:
    return lambda code: next(answer for name, answer in answers.items() if f"import {name}" in code or name in code)


def by_name(findings: list[Finding]) -> dict[str, Finding]:
    return {each.name: each for each in findings}


def test_a_healthy_machine_needs_no_cure() -> None:
    for each in doctor.examine(answering(HEALTHY)):
        if each.name != "weights":
            assert (each.verdict, each.cure) == (Verdict.OK, ""), each


@pytest.mark.parametrize(
    ("library", "check", "verdict"),
    [
        ("torch", "device", Verdict.PROBLEM),
        ("mujoco", "rendering", Verdict.PROBLEM),
        ("imageio_ffmpeg", "video", Verdict.WARNING),
    ],
)
def test_a_broken_library_is_found_and_has_a_cure(library: str, check: str, verdict: Verdict) -> None:
    findings = by_name(doctor.examine(answering({**HEALTHY, library: {"error": "it broke"}})))
    assert findings[check].verdict is verdict
    assert "it broke" in findings[check].found
    assert findings[check].cure
    assert all(each.verdict is not Verdict.PROBLEM for name, each in findings.items() if name != check)


@pytest.mark.parametrize(
    ("finding", "verdict", "words"),
    [
        (doctor.check_python((3, 10, 2)), Verdict.PROBLEM, "3.10.2"),
        (doctor.check_packages(("numpy", "no-such-package")), Verdict.PROBLEM, "no-such-package"),
        (doctor.check_threads({}, {}, 2), Verdict.WARNING, "OMP_WAIT_POLICY=unset"),
        (doctor.check_threads({}, {"OMP_WAIT_POLICY": "active"}, 2), Verdict.WARNING, "ACTIVE"),
        (doctor.check_render({**HEALTHY["mujoco"], "red": 0}, {}), Verdict.PROBLEM, "black"),
        (doctor.check_render({**HEALTHY["mujoco"], "ms": 90.0}, {}), Verdict.WARNING, "90.0 ms"),
        (doctor.check_weights(Path("absent")), Verdict.WARNING, "none"),
    ],
)
def test_each_problem(finding: Finding, verdict: Verdict, words: str) -> None:
    assert finding.verdict is verdict
    assert words in finding.found
    assert finding.cure


def test_a_probe_runs_apart_and_survives_a_crash() -> None:
    assert doctor.run_probe("print('noise'); print('{\"a\": 1}')") == {"a": 1}
    assert doctor.run_probe("raise ValueError('gone')") == {"error": "ValueError: gone"}
    assert "code -6" in doctor.run_probe("import os; os.abort()")["error"]


def test_a_probe_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "PROBE_TIMEOUT_S", 0.2)
    assert "no answer" in doctor.run_probe("import time; time.sleep(60)")["error"]


@pytest.mark.parametrize(("verdict", "code"), [(Verdict.OK, 0), (Verdict.WARNING, 0), (Verdict.PROBLEM, 1)])
def test_the_command_exits_with_the_verdict(
    verdict: Verdict, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    finding = Finding("thing", verdict, "found [this]", "take that")
    monkeypatch.setattr("mstar_plan.commands.doctor.examine", lambda: [finding])
    assert command() == code
    printed = capsys.readouterr().out
    assert "found [this]" in printed
    assert "cure: take that" in printed


@pytest.mark.render
def test_this_machine_renders_and_has_torch() -> None:
    findings = by_name(doctor.examine())
    assert findings["device"].verdict is Verdict.OK
    assert findings["rendering"].verdict is not Verdict.PROBLEM
    assert findings["video"].verdict is Verdict.OK
