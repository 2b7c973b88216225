"""What the README says is true: its Python runs against a real server, its commands and links exist."""

from __future__ import annotations

import re
import shlex
from importlib import import_module
from pathlib import Path

import pytest

from mstar_plan.build import PlanningConfig, build_planning
from mstar_plan.cli import COMMANDS
from mstar_plan.commands.evaluate import EvaluationConfig
from mstar_plan.config import load
from mstar_plan.serving.server import PlanningServer, ServerConfig

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def shell_lines() -> list[str]:
    """Commands of the README's shell blocks, without their comments."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", README, re.M | re.S)
    return [line.split("#")[0].strip() for block in blocks for line in block.splitlines() if line.strip()]


def test_python_block_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```$", README, re.M | re.S)
    config = load("evaluate", ["env=reach"], EvaluationConfig)
    assert isinstance(config, PlanningConfig)
    names: dict[str, object] = {}
    with (
        build_planning({"reach": (config.env, config)}) as planning,
        PlanningServer(planning.solvers, ServerConfig(port=0)) as server,
    ):
        exec(compile(code.replace("127.0.0.1:50051", server.address), "README.md", "exec"), names)
    assert "(12, 2)" in capsys.readouterr().out
    assert names["action"].shape == (2,)


@pytest.mark.parametrize("line", [line for line in shell_lines() if line.startswith("make ")])
def test_make_targets_exist(line: str) -> None:
    target = shlex.split(line)[1]
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.M)


@pytest.mark.parametrize("line", [line for line in shell_lines() if line.startswith("mstar-plan ")])
def test_commands_exist(line: str) -> None:
    command = shlex.split(line)[1]
    module, _, function = COMMANDS[command].partition(":")
    assert callable(getattr(import_module(module), function))


@pytest.mark.parametrize("line", [line for line in shell_lines() if line.startswith("mstar-plan evaluate")])
def test_evaluate_settings_are_known(line: str) -> None:
    load("evaluate", shlex.split(line)[2:], EvaluationConfig)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    prose = re.sub(r"^```.*?^```$|`[^`\n]*`", "", page.read_text(), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)#]+)\)", prose):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
