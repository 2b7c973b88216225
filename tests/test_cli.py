"""The examples of docs/cli.md are commands with settings that exist, and every command is in its table."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from mstar_plan.cli import COMMANDS, main
from mstar_plan.commands.demo import DemoConfig
from mstar_plan.commands.evaluate import EvaluationConfig
from mstar_plan.commands.landscape import LandscapeConfig
from mstar_plan.commands.plan import PlanConfig
from mstar_plan.commands.serve import ServeConfig
from mstar_plan.config import load
from mstar_plan.training.collection import CollectConfig
from mstar_plan.training.recipe import TrainConfig

PAGE = (Path(__file__).parents[1] / "docs" / "cli.md").read_text()
SCHEMAS = {
    "demo": DemoConfig, "evaluate": EvaluationConfig, "plan": PlanConfig, "serve": ServeConfig,
    "collect": CollectConfig, "train": TrainConfig, "landscape": LandscapeConfig,
}  # fmt: skip
EXAMPLES = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.S) for line in block.splitlines()]


@pytest.mark.parametrize("line", EXAMPLES)
def test_examples_have_settings_that_exist(line: str) -> None:
    program, command, *words = shlex.split(line)
    assert program == "mstar-plan"
    assert command in COMMANDS
    if command in SCHEMAS:
        settings = [word for word in words if "=" in word]
        own = f"train/{dict(w.split('=') for w in settings)['env']}" if command == "train" else command
        load(own, settings, SCHEMAS[command])


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_documented_and_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert re.search(rf"^\| `{command}\b", PAGE, re.M)
    assert main([command, "--help"]) == 0
    assert "Usage" in capsys.readouterr().out


def test_no_command_shows_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "evaluate" in capsys.readouterr().out


def test_unknown_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evalaute"]) == 2
    assert "evalaute" in capsys.readouterr().err
