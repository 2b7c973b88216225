"""Packaged world models over a real socket with Triton's own client: every walk, its stream, and random damage."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import tritonclient.grpc as triton
from inference_world import sent, served
from tritonclient.utils import InferenceServerException, triton_to_np_dtype

from mstar_plan.families.servable import Servable
from mstar_plan.families.world import world_servable
from mstar_plan.models.registry import load_model
from mstar_plan.models.toy import render
from mstar_plan.rollout.cem import CEMConfig
from mstar_plan.rollout.limits import PlanLimits
from mstar_plan.rollout.objective import ObjectiveConfig
from mstar_plan.rollout.plan_walk import plan_graph
from mstar_plan.serving.proto.inference import inference_pb2 as pb

NAMES = ("toy", "reach")
PLANNER = CEMConfig(samples=16, iterations=2, horizon=3, elites=4, carry=2)
LIMITS = PlanLimits(max_horizon=6, max_iterations=4, max_samples=64)
HERE, THERE = np.array([-0.2, 0.1]), np.array([0.1, 0.0])


def world(name: str) -> Servable:
    model = load_model(name)
    return world_servable(name, plan_graph(model, PLANNER, ObjectiveConfig(), name), model.spec, limits=LIMITS)


@pytest.fixture(scope="module")
def client() -> Iterator[triton.InferenceServerClient]:
    with (
        served(**{name: world(name) for name in NAMES}) as (server, _),
        triton.InferenceServerClient(server.address) as made,
    ):
        yield made


def good(client: triton.InferenceServerClient, name: str) -> dict[str, np.ndarray]:
    """Values for the inputs of a walk that must be there, made from its description alone."""
    described = client.get_model_metadata(name)
    values = {}
    for each in described.inputs:
        if f"default.{each.name}" in properties(described):
            continue
        shape = [1 if side < 0 else side for side in each.shape]
        values[each.name] = np.full(shape, 100 if each.datatype == "UINT8" else 0, triton_to_np_dtype(each.datatype))
    return values


def properties(described: object) -> dict[str, str]:
    """Of a description; Triton's message has no field for them, and keeps them unread."""
    return dict(pb.ModelMetadataResponse.FromString(described.SerializeToString()).properties)


def walks(client: triton.InferenceServerClient, name: str) -> list[str]:
    return properties(client.get_model_metadata(name))["walks"].split(",")


@pytest.mark.parametrize("name", NAMES)
def test_every_walk_runs_from_its_description(client, name):
    found = walks(client, name)
    assert len(found) == 8
    for walk in found:
        asked = f"{name}/{walk}"
        inputs = [sent(key, value) for key, value in good(client, asked).items()]
        answer = client.infer(asked, inputs)
        for output in client.get_model_metadata(asked).outputs:
            value = answer.as_numpy(output.name)
            assert np.isfinite(value).all(), (walk, output.name)
            assert all(want in (-1, have) for want, have in zip(output.shape, value.shape, strict=True))


def test_known_values(client):
    pictures = np.stack([render(HERE), render(THERE)])[None]
    latents = client.infer("toy", [sent("frames", pictures)]).as_numpy("latents")
    np.testing.assert_allclose(latents[0, :, 0], [HERE, THERE], atol=0.01)
    actions = np.array([[[[1, 0], [0, -1]]]], np.float32)
    rolled = client.infer("toy/rollout", [sent("frames", pictures[:, :1]), sent("actions", actions)])
    expected = HERE + np.array([[0.1, 0], [0.1, -0.1]])
    np.testing.assert_allclose(rolled.as_numpy("predicted")[0, 0, :, 0], expected, atol=0.01)
    grid = np.array([[[1, 0], [-1, 0]]], np.float32)
    view = [sent("frames", pictures[:, :1]), sent("goal_frames", pictures[:, 1:]), sent("grid", grid)]
    costs = client.infer("toy/landscape", view).as_numpy("costs")[0]
    np.testing.assert_allclose(costs, [np.hypot(0.2, 0.1), np.hypot(0.4, 0.1)], atol=0.02)


def test_a_search_is_seen_while_it_goes_on(client):
    pictures = [sent("frames", render(HERE)[None, None]), sent("goal_frames", render(THERE)[None, None])]
    came: list[object] = []
    client.start_stream(lambda result, error: came.append(error or result))
    client.async_stream_infer("toy/plan", pictures, parameters={"stream": "best_cost", "iterations": 4, "seed": 3})
    client.stop_stream()
    costs = [each.as_numpy("best_cost")[0] for each in came[:-1]]
    assert costs == came[-1].as_numpy("cost_history")[0].tolist()
    assert len(costs) == 4
    assert came[-1].as_numpy("cost")[0] == pytest.approx(min(costs))


def test_a_soft_time_ends_the_search_with_a_plan(client):
    pictures = [sent("frames", render(HERE)[None, None]), sent("goal_frames", render(THERE)[None, None])]
    answer = client.infer("toy/plan", pictures, parameters={"iterations": 4, "soft_time": 1})
    assert answer.as_numpy("cost_history").shape[1] < 4
    assert answer.as_numpy("plan").shape == (1, 3, 2)


def damage(rng: np.random.Generator, values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    changed = dict(values)
    key = rng.choice(list(changed))
    value = changed[key]
    match rng.integers(6):
        case 0:
            del changed[key]
        case 1:
            changed[key] = np.repeat(value, rng.integers(2, 5), axis=rng.integers(value.ndim))
        case 2:
            changed[key] = value.reshape((*value.shape, 1))
        case 3:
            changed[key] = value.astype(rng.choice(["float64", "int8", "bool", "float32"]))
        case 4:
            changed[key] = (value + rng.choice([0, 2, 1e30, -5])).astype(value.dtype)
        case _:
            changed[rng.choice(["last_action", "warm_mean", "warm_elites", "x"])] = rng.normal(
                size=(1, *rng.integers(1, 4, rng.integers(1, 3)), 2)
            ).astype(np.float32)
    return changed


@pytest.mark.filterwarnings("ignore:overflow encountered in cast", "ignore:invalid value encountered in cast")
@pytest.mark.parametrize("name", NAMES)
def test_random_damage_is_told(client, name):
    rng = np.random.default_rng(2)
    names = ["horizon", "iterations", "samples", "seed", "tile", "repeat", "frames", "timeout"]
    numbers = [-(2**63), -1, 0, 1, 3, 16, 65, 2**31, 2**63 - 1]
    codes = set()
    for _ in range(120):
        asked = f"{name}/{rng.choice(walks(client, name))}"
        values = good(client, asked)
        parameters = {str(rng.choice(names)): int(rng.choice(numbers)) for _ in range(rng.integers(3))}
        timeout = {"timeout": parameters.pop("timeout")} if parameters.get("timeout", -1) > 10**6 else {}
        parameters.pop("timeout", None)
        values = damage(rng, values) if rng.random() < 0.7 else values
        try:
            client.infer(asked, [sent(*each) for each in values.items()], parameters=parameters, **timeout)
        except InferenceServerException as error:
            codes.add(error.status())
    assert codes <= {f"StatusCode.{code}" for code in ("INVALID_ARGUMENT", "RESOURCE_EXHAUSTED")}
    assert len(codes) == 2
    assert client.infer(name, [sent(*each) for each in good(client, name).items()]) is not None
