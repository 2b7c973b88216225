"""Policy and world model as one family: it answers like the policy, but with the best of what that proposes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from openpi_client.websocket_client_policy import WebsocketClientPolicy

from mstar_plan.commands.evaluate import EvaluationConfig
from mstar_plan.config import load
from mstar_plan.errors import InvalidInputError, LimitExceededError, NotFoundError
from mstar_plan.families.catalogue import load_family
from mstar_plan.families.flow_policy import KEYS
from mstar_plan.families.rerank import TUNINGS, load_rerank
from mstar_plan.families.servable import FamilyConfig
from mstar_plan.runtime.runtime import Runtime
from mstar_plan.serving.http.config import HttpConfig
from mstar_plan.serving.http.server import HttpServer

NAMES = tuple(f"{task}_rerank" for task in TUNINGS)


def seen(seed=0):
    rng = np.random.default_rng(seed)
    return {key: rng.integers(0, 255, (64, 64, 3), dtype=np.uint8) for key in KEYS}


@pytest.fixture(scope="module", params=NAMES)
def served(request):
    servable = load_family(request.param)
    with Runtime(servable.graph) as runtime:
        yield servable, runtime


def ask(served, seed=1, **changes):
    servable, runtime = served
    call = servable.action.act(seen(), seed=seed)
    return runtime.submit(call.walk, {**call.values, **changes}).result(20).outputs


def sample(face):
    """Values that work; what may be left out for nothing is left out."""
    return {name: port.sample() for name, port in face.inputs.items() if port.default is not None}


def test_it_answers_with_the_best_of_what_the_policy_proposes(served):
    out = ask(served)
    assert out["actions"].shape == (1, served[0].action.chunk, 2)
    assert torch.equal(out["actions"][0], out["proposed"][0, out["choice"]][0])
    assert out["cost"] == out["proposal_costs"].min()
    assert out["proposal_costs"].shape == (1, 16)
    assert len(out["proposal_costs"].unique()) == 16


def test_with_one_proposal_it_is_the_policy(served):
    alone = load_family(f"flow_{served[0].name.removesuffix('_rerank')}")
    with Runtime(alone.graph) as runtime:
        call = alone.action.act(seen(), seed=1)
        actions = runtime.submit(call.walk, call.values).result(20).outputs["actions"]
    assert torch.equal(ask(served, proposals=1)["actions"], actions)


def test_every_face_works_with_its_examples(served):
    servable, runtime = served
    assert servable.faces.keys() == {"rerank", "refine"}
    for face in servable.faces.values():
        values = face.prepare(face.check(sample(face)))
        assert values.keys() == set(servable.graph.walk(face.walk).inputs)
        outputs = runtime.submit(face.walk, values).result(20).outputs
        assert outputs.keys() == face.outputs.keys()
        for name, port in face.outputs.items():
            plain = face.present(name, outputs[name])
            assert str(plain.dtype) == f"torch.{port.dtype}"
            assert len(plain.shape) == len(port.shape)
            assert all(want in (None, have) for want, have in zip(port.shape, plain.shape, strict=True))


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({"proposals": 0}, InvalidInputError),
        ({"proposals": 10**6}, LimitExceededError),
        ({"horizon": 99}, LimitExceededError),
        ({"iterations": 10**6}, LimitExceededError),
        ({"samples": 2}, InvalidInputError),
        ({"seed": -1}, InvalidInputError),
    ],
)
def test_a_face_takes_no_more_than_it_can_do(served, asked, error):
    face = served[0].faces["refine"]
    with pytest.raises(error, match=next(iter(asked))):
        face.prepare(face.check({**sample(face), **asked}))


def test_an_old_chunk_is_one_more_candidate(served):
    servable, runtime = served
    out = ask(served)
    left = out["actions"][0, 3:].numpy()
    call = servable.action.act(seen(), seed=1, previous=left, delay=2)
    again = runtime.submit(call.walk, call.values).result(20).outputs
    assert again["proposal_costs"].shape == (1, 17)
    np.testing.assert_allclose(again["actions"][0, :2], left[:2], atol=1e-6)
    np.testing.assert_allclose(again["proposed"][0, 16, : len(left)], left, atol=1e-6)
    longer = servable.action.act(seen(), seed=1, previous=np.zeros((99, 2), np.float32)).values["warm"]
    assert longer.shape == (1, 1, servable.action.chunk, 2)
    assert servable.action.act(seen(), previous=left[:0]).values["warm"] is None


@pytest.mark.parametrize(
    ("previous", "delay"), [(None, 1), (np.zeros((3, 2)), 4), (np.zeros((3, 2)), -1), (np.zeros((3, 3)), 0)]
)
def test_old_chunks_that_do_not_fit(served, previous, delay):
    with pytest.raises(InvalidInputError, match="delay"):
        served[0].action.act(seen(), previous=previous, delay=delay)


@pytest.mark.parametrize("task", TUNINGS)
def test_it_plans_as_the_task_says(task):
    config = load("evaluate", [f"env={task}"], EvaluationConfig)
    assert TUNINGS[task].planner == config.planner
    assert TUNINGS[task].objective == config.objective


@pytest.mark.parametrize("name", ["wall_rerank", "reach"])
def test_names_of_no_task(name):
    with pytest.raises(NotFoundError, match="reach_rerank"):
        load_rerank(name, FamilyConfig())


@pytest.mark.filterwarnings("ignore:connect.. must be used as a context manager:DeprecationWarning")
def test_a_robot_asks_over_a_websocket():
    servables = {name: load_family(name) for name in NAMES}
    config = HttpConfig(port=0)
    with (
        Runtime({name: servable.graph for name, servable in servables.items()}) as runtime,
        HttpServer(servables, runtime, config) as server,
    ):
        host, _, port = server.address.removeprefix("http://").rpartition(":")
        robot = WebsocketClientPolicy(host, int(port))
        told = robot.get_server_metadata()
        assert (told["model"], told["chunk"], told["dt_s"]) == ("reach_rerank", 12, 0.1)
        assert [each["key"] for each in told["fields"]] == list(KEYS)
        actions = robot.infer({**seen(), "options": {"seed": 1}})["actions"]
        call = servables["reach_rerank"].action.act(seen(), seed=1)
        wanted = runtime.submit(call.walk, call.values, graph="reach_rerank").result(20).outputs["actions"]
        np.testing.assert_allclose(actions, wanted[0], atol=1e-6)
        with pytest.raises(RuntimeError, match="lacks"):
            robot.infer({KEYS[0]: seen()[KEYS[0]]})
        robot._ws.close()
