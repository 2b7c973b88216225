"""The serve command as a process: its address, a plan, SIGTERM and exit code 0; its configuration."""

from __future__ import annotations

import signal
import subprocess
import sys

import numpy as np
import pytest

from mstar_plan.commands.serve import ServeConfig
from mstar_plan.config import load
from mstar_plan.errors import ConfigError
from mstar_plan.models.toy import render
from mstar_plan.serving.client import PlanClient
from mstar_plan.types import Goal, Observation, PlanRequest, PlanStatus


def test_a_server_process_plans_and_ends_politely() -> None:
    command = [sys.executable, "-m", "mstar_plan.cli", "serve", "models=[toy]", "port=0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = process.stdout.readline().split()
        assert said[:3] == ["serving", "toy", "at"]
        frame = render(np.zeros(2))
        with PlanClient(said[3]) as client:
            assert client.plan(PlanRequest(Observation(frame[None]), Goal(frame=frame))).status is PlanStatus.COMPLETE
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


@pytest.mark.parametrize(
    "words", [["models=[]"], ["models=[toy,toy]"], ["models=[reach,wall]", "weights=x.safetensors"]]
)
def test_models_that_make_no_sense(words: list[str]) -> None:
    with pytest.raises(ConfigError):
        load("serve", words, ServeConfig)
