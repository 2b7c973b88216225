"""The doctor finds this machine ready."""

from __future__ import annotations

import pytest

from mstar_plan.cli import main


@pytest.mark.render
def test_doctor(capsys) -> None:
    assert main(["doctor"]) == 0
    assert "ready" in capsys.readouterr().out
