"""Names of models and walks: found, told apart, and refused with what was meant."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from inference_world import Toy, toy

from mstar_plan.errors import ComponentError, ConfigError, InvalidInputError, NotFoundError, UnavailableError
from mstar_plan.families.face import WalkFace
from mstar_plan.families.servable import Servable
from mstar_plan.runtime.runtime import Runtime
from mstar_plan.serving.served_walks import ServedWalks
from mstar_plan.walks.graph import Graph


@pytest.fixture
def model() -> Toy:
    return toy()


@pytest.fixture
def runtime(model: Toy) -> Iterator[Runtime]:
    with Runtime({"toy": model.graph, "toy/add": model.graph, "mute": Graph("mute", {}, {})}) as made:
        yield made


@pytest.fixture
def walks(model: Toy, runtime: Runtime) -> ServedWalks:
    return ServedWalks({"toy": model.servable, "mute": Servable(name="mute", graph=Graph("mute", {}, {}))}, runtime)


@pytest.mark.parametrize(
    ("asked", "walk", "found"),
    [("toy", "", "add"), ("toy/say", "", "say"), ("toy", "say", "say"), ("toy/say", "say", "say")],
)
def test_names(walks, asked, walk, found):
    target = walks.find(asked, "1", walk)
    assert (target.asked, target.model, target.face.walk) == (asked, "toy", found)


def test_a_model_may_have_a_slash_in_its_name(model, runtime):
    walks = ServedWalks({"toy": model.servable, "toy/add": model.servable}, runtime)
    assert walks.find("toy/add").model == "toy/add"
    assert walks.find("toy/add/say").face.walk == "say"
    assert walks.find("toy/say").model == "toy"


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        (("tpy",), NotFoundError, "no model 'tpy'; did you mean 'toy'"),
        (("tpy/add",), NotFoundError, "no model 'tpy'; did you mean 'toy'"),
        (("",), NotFoundError, "no model ''"),
        (("/",), NotFoundError, "no model"),
        (("toy/ad",), NotFoundError, "no walk 'ad'; did you mean 'add'"),
        (("toy", "", "ad"), NotFoundError, "no walk 'ad'; did you mean 'add'"),
        (("toy", "2"), NotFoundError, "no version '2'"),
        (("toy/add", "", "say"), InvalidInputError, "say one"),
        (("mute",), NotFoundError, "offers no walk"),
        (("x" * 1_000_000,), NotFoundError, r"xxx\.\.\."),
    ],
)
def test_unknown_names(walks, arguments, kind, words):
    with pytest.raises(kind, match=words) as caught:
        walks.find(*arguments)
    assert len(str(caught.value)) < 300


def test_ready_when_marked(walks):
    target = walks.find("toy")
    with pytest.raises(UnavailableError, match="warming up"):
        walks.ready(target)
    walks.mark("toy", None)
    assert walks.ready(target) is target
    walks.mark("toy", "it is broken")
    with pytest.raises(UnavailableError, match="it is broken"):
        walks.ready(target)


def test_trying_out_runs_the_first_walk(model, runtime, walks):
    walks.try_out("toy", 10)
    walks.try_out("mute", 10)
    first = {"fail": model.servable.faces["fail"]}
    with pytest.raises(ComponentError, match="'fail' failed"):
        ServedWalks({"toy": replace(model.servable, faces=first)}, runtime).try_out("toy", 10)


def test_trying_out_gives_back_what_was_held(model, runtime):
    walks = ServedWalks({"toy": replace(model.servable, faces={"hold": model.servable.faces["hold"]})}, runtime)
    runtime.close()
    with pytest.raises(UnavailableError):
        walks.try_out("toy", 10)
    assert not model.book


def test_a_graph_or_walk_that_is_not_there(model, runtime):
    with pytest.raises(ConfigError, match="no graph 'tob'"):
        ServedWalks({"tob": model.servable}, runtime)
    with pytest.raises(ConfigError, match="no walk 'ad'; did you mean 'add'"):
        ServedWalks({"toy": replace(model.servable, faces={"a": WalkFace("ad", {}, {})})}, runtime)
