"""The ability to act: seeds, limits, chunks that go on from the last one, and the face of the walk."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from vla_worlds import ROBOT_ACTION, ROBOT_STATE, observation, tiny_vla

from mstar_plan.errors import InvalidInputError, LimitExceededError
from mstar_plan.families.abilities import ActionAbility, WalkCall
from mstar_plan.families.servable import Servable
from mstar_plan.families.vla_actions import noise_of
from mstar_plan.models.vla.rtc import ChunkingConfig, ChunkPrior
from mstar_plan.runtime.runtime import Runtime

KINDS = ("pi0", "pi05")


class Robot:
    """A family with a runtime."""

    def __init__(self, family: Servable, runtime: Runtime) -> None:
        assert family.action is not None
        self.family, self.runtime, self.ability = family, runtime, family.action

    def run(self, call: WalkCall) -> dict[str, Any]:
        return dict(self.runtime.submit(call.walk, call.values).result().outputs)

    def act(self, given: Any = None, **options: Any) -> np.ndarray:
        call = self.ability.act(observation() if given is None else given, **options)
        return self.run(call)["actions"].numpy()


@pytest.fixture(scope="module", params=KINDS)
def robot(request: pytest.FixtureRequest) -> Iterator[Robot]:
    family = tiny_vla("tiny", request.param)
    with Runtime(family.graph) as runtime:
        yield Robot(family, runtime)


def test_it_is_an_ability_to_act(robot: Robot) -> None:
    ability: ActionAbility = robot.ability
    assert robot.family.abilities == ("action",)
    assert robot.family.graph.name == robot.family.name
    assert ability.chunk == 5
    assert ability.action.names == ("x", "y", "z", "grip")
    assert ability.action.low.tolist() == [-3.0] * 4
    assert {each.kind for each in ability.fields} == {"image", "state", "text"}


def test_a_chunk_is_finite_within_limits_and_follows_from_its_seed(robot: Robot) -> None:
    first = robot.act(seed=1)
    assert first.shape == (1, 5, ROBOT_ACTION)
    assert first.dtype == np.float32
    assert (np.abs(first) <= 3).all()
    assert (robot.act(seed=1) == first).all()
    assert (robot.act(seed=2) != first).any()
    assert (robot.act() != robot.act()).any()  # a seed is drawn
    changed = {**observation(), "prompt": "put it down"}
    assert (robot.act(changed, seed=1) != first).any()


def test_what_leaves_the_limits_is_counted(robot: Robot) -> None:
    given = [robot.run(robot.ability.act(observation(), seed=seed)) for seed in range(4)]
    for each in given:
        at_limit = int((each["actions"].abs() == 3).sum())
        assert each["clipped"].tolist() == [at_limit]
    assert sum(int(each["clipped"]) for each in given) > 0


def test_guidance_draws_the_chunk_to_the_old_one(robot: Robot) -> None:
    free = robot.act(seed=3)[0]
    old = np.clip(free[1:4] + 0.5, -2, 2).astype(np.float32)
    guided = robot.act(seed=3, previous=old, delay=2)[0]
    assert (guided != free).any()
    before, after = np.abs(free[:2] - old[:2]).mean(), np.abs(guided[:2] - old[:2]).mean()
    assert after < before
    again = robot.act(seed=3, previous=old, delay=0)[0]
    assert (again != guided).any()  # the delay says how much of it is certain


def test_a_clean_prefix_comes_back_in_the_robots_units() -> None:
    family = tiny_vla("tiny", "pi05", chunking=ChunkingConfig("trained", max_delay=3))
    old = np.array([[0.5, -1.0, 1.5, 0.0], [1.0, 1.0, -1.0, -0.5], [0.0] * 4], np.float32)
    with Runtime(family.graph) as runtime:
        found = Robot(family, runtime).act(seed=0, previous=old, delay=2)[0]
        np.testing.assert_allclose(found[:2], old[:2], atol=1e-5)
        with pytest.raises(InvalidInputError, match="previous has 3 actions"):
            family.action.act(observation(), previous=old, delay=4)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"seed": -1}, "seed is -1"),
        ({"seed": 2**63}, "seed is"),
        ({"seed": True}, "seed is True"),
        ({"delay": 1}, "no previous"),
        ({"previous": np.zeros((2, 3), np.float32)}, "actions of 3 numbers; this policy's have 4"),
        ({"previous": np.zeros(4, np.float32)}, "2 dimensions"),
        ({"previous": np.full((2, 4), np.inf, np.float32)}, "NaN or infinite"),
        ({"previous": np.zeros((6, 4), np.float32)}, "send 1 to 5"),
        ({"previous": np.zeros((2, 4), np.float32), "delay": 3}, "delay is 3"),
    ],
)
def test_mistakes_are_told_at_the_door(robot: Robot, options: dict, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        robot.ability.act(observation(), **options)


def test_noise_follows_from_the_seed_alone() -> None:
    assert torch.equal(noise_of(5, (1, 2, 3)), noise_of(5, (1, 2, 3)))
    assert not torch.equal(noise_of(5, (1, 2, 3)), noise_of(6, (1, 2, 3)))
    state = torch.get_rng_state()
    noise_of(None, (1, 2))
    assert torch.equal(torch.get_rng_state(), state)


def test_the_face_runs_with_its_samples_and_gives_its_ports(robot: Robot) -> None:
    face = robot.family.faces["act"]
    values = face.prepare(face.check({name: port.sample() for name, port in face.inputs.items()}))
    given = robot.run(WalkCall("act", values))
    assert given.keys() == face.outputs.keys()
    for name, port in face.outputs.items():
        assert len(given[name].shape) == len(port.shape)
        assert str(given[name].dtype) == f"torch.{port.dtype}"


def test_the_face_gives_what_the_ability_gives_row_by_row(robot: Robot) -> None:
    face = robot.family.faces["act"]
    images = torch.randint(0, 256, (2, 2, 30, 40, 3), dtype=torch.uint8)
    state = torch.randn(2, ROBOT_STATE)
    mask = torch.tensor([[True, True], [True, False]])
    told = {"images": images, "image_mask": mask, "state": state, "prompt": "go", "seed": 4, "steps": 3}
    both = robot.run(WalkCall("act", face.prepare(face.check(told))))["actions"]
    assert both.shape == (2, 5, ROBOT_ACTION)
    keys = ("observation/image", "observation/wrist_image")
    given = {key: images[1, i].numpy() for i, key in enumerate(keys) if mask[1, i]}
    call = robot.ability.act({**given, "state": state[1].numpy(), "prompt": "go"}, seed=4)
    values = {**call.values, "steps": 3, "noise": noise_of(4, (2, 5, 6))[1:], "prior": ChunkPrior(1)}
    torch.testing.assert_close(robot.run(WalkCall("act", values))["actions"], both[1:], atol=1e-5, rtol=1e-4)


def test_the_face_refuses_what_does_not_fit(robot: Robot) -> None:
    face = robot.family.faces["act"]
    told = {name: port.sample() for name, port in face.inputs.items()}
    with pytest.raises(InvalidInputError, match="differ in their leading B"):
        face.prepare(face.check({**told, "state": torch.zeros(2, ROBOT_STATE)}))
    with pytest.raises(InvalidInputError, match="seed"):
        face.prepare(face.check({**told, "seed": -3}))
    with pytest.raises(LimitExceededError, match="101"):
        robot.run(WalkCall("act", face.prepare(face.check({**told, "steps": 101}))))
