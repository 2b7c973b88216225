"""Families on the one runtime: each on a worker of its own, beside world models."""

from __future__ import annotations

import pytest
import toy_catalogue

from mstar_plan.build import PlanningConfig, build_planning
from mstar_plan.build_families import cores, load_families, running, with_families
from mstar_plan.commands.serve import ServeConfig
from mstar_plan.config import load
from mstar_plan.errors import ConfigError, NotFoundError
from mstar_plan.families.abilities import ChatMessage, TextOptions
from mstar_plan.families.servable import FamilyConfig
from mstar_plan.rollout.plan_walk import plan_graph
from mstar_plan.runtime.placement import Placement


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mstar_plan.families.catalogue.FAMILIES", toy_catalogue.CATALOGUE)


def test_each_family_has_its_worker():
    loaded = load_families({"writer": FamilyConfig(threads=2), "hummer": FamilyConfig()})
    placement = with_families(None, loaded)
    assert placement.groups["family/writer"].threads == 2
    assert placement.groups["family/hummer"].threads == 1
    assert placement.group("writer", "generate", "write") == "family/writer"


def test_world_models_keep_theirs():
    loaded = load_families({"writer": FamilyConfig()})
    config = load("serve", ["models=[toy]", "task=toy"], ServeConfig)
    assert isinstance(config, PlanningConfig)
    with build_planning({"toy": (config.task, config)}, {"writer": FamilyConfig()}) as planning:
        assert set(planning.solvers) == {"toy"}
        assert set(planning.families) == {"writer"}
        assert set(planning.runtime.graphs) == {"toy", "writer"}
        placement = planning.runtime.placement
        assert placement.group("toy", "encode", "encode") == "main"
        assert placement.group("writer", "generate", "write") == "family/writer"
        call = planning.families["writer"].text.chat([ChatMessage("user", "hi")], TextOptions())
        deltas = planning.runtime.submit(call.walk, call.values, graph="writer").result(10).outputs["answers"]
        assert deltas[0][0].text == "user:hi "
    graph = plan_graph(planning.models["toy"], config.planner, config.objective)
    both = with_families(Placement.single({"toy": graph}), loaded)
    assert set(both.groups) == {"main", "family/writer"}


def test_families_alone_need_no_world_model():
    before = len(toy_catalogue.closed)
    with build_planning({}, {"writer": FamilyConfig()}) as planning:
        assert planning.solvers == {}
    assert len(toy_catalogue.closed) == before + 1


def test_nothing_to_serve():
    with pytest.raises(ConfigError, match="name at least one"):
        build_planning({})


def test_a_family_that_is_not_there():
    with pytest.raises(NotFoundError, match="did you mean 'writer'"), running("wrter", FamilyConfig()):
        pass


def test_cores():
    assert cores() >= 1
