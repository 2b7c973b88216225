"""The client of docs/serving.md runs, and the page names every reason that an error can have."""

from __future__ import annotations

from doc_blocks import DOCS, run_page

from mstar_plan.build import PlanningConfig, build_planning
from mstar_plan.commands.serve import ServeConfig
from mstar_plan.config import load
from mstar_plan.serving.server import PlanningServer, ServerConfig
from mstar_plan.serving.status import CODES


def test_the_example_runs():
    config = load("serve", ["models=[toy]", "task=toy"], ServeConfig)
    assert isinstance(config, PlanningConfig)
    with (
        build_planning({"toy": (config.task, config)}) as planning,
        PlanningServer(planning.solvers, ServerConfig(port=0)) as server,
    ):
        run_page("serving.md", ADDRESS=server.address)


def test_every_reason_is_documented():
    page = (DOCS / "serving.md").read_text()
    assert [kind.reason for kind in CODES if kind.reason not in page and kind.reason != "MSTAR_ERROR"] == []
