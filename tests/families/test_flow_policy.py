"""Flow policies as families: what wires may ask of them, and what is refused."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch

from mstar_plan.build import action_spec
from mstar_plan.errors import InvalidInputError, UnavailableError
from mstar_plan.families.flow_policy import KEYS, load_flow_policy_family, look, seed_of
from mstar_plan.families.servable import FamilyConfig
from mstar_plan.runtime.runtime import Runtime

NAMES = ("flow_reach", "flow_push")
GREY = np.full((64, 64, 3), 127, np.uint8)


def seen(**changes):
    rng = np.random.default_rng(0)
    return {key: rng.integers(0, 255, (64, 64, 3), dtype=np.uint8) for key in KEYS} | changes


@pytest.fixture(scope="module", params=NAMES)
def served(request):
    servable = load_flow_policy_family(request.param, FamilyConfig())
    with Runtime(servable.graph) as runtime:
        yield servable, runtime


def ask(served, observation=None, **options):
    servable, runtime = served
    call = servable.action.act(observation or seen(), **options)
    return runtime.submit(call.walk, call.values).result(20).outputs["actions"]


def test_it_acts(served):
    policy = served[0].action
    actions = ask(served, seed=1)
    assert actions.shape == (1, policy.chunk, policy.action.size)
    assert actions.dtype == torch.float32
    assert actions.isfinite().all()
    assert (actions[0].numpy() <= policy.action.high).all()
    assert (actions[0].numpy() >= policy.action.low).all()
    assert served[0].abilities == ("action",)
    assert served[0].graph.name == served[0].name


def test_seeds(served):
    assert torch.equal(ask(served, seed=1), ask(served, seed=1))
    assert not torch.equal(ask(served, seed=1), ask(served, seed=2))
    assert not torch.equal(ask(served), ask(served))  # one is drawn


@pytest.mark.render
@pytest.mark.parametrize("name", NAMES)
def test_its_actions_are_those_of_the_environment(name):
    env = gymnasium.make(f"envs:mstar/{name.removeprefix('flow_').capitalize()}-v0")
    ours, theirs = load_flow_policy_family(name, FamilyConfig()).action.action, action_spec(env)
    env.close()
    for field in ("names", "units", "dt_s"):
        assert getattr(ours, field) == getattr(theirs, field)
    np.testing.assert_array_equal([ours.low, ours.high], [theirs.low, theirs.high])


def test_every_face_works_with_its_examples(served):
    servable, runtime = served
    assert servable.faces.keys() == {"act", "propose"}
    for face in servable.faces.values():
        values = face.prepare(face.check({name: port.sample() for name, port in face.inputs.items()}))
        assert values.keys() == set(servable.graph.walk(face.walk).inputs)
        outputs = runtime.submit(face.walk, values).result(20).outputs
        assert outputs.keys() == face.outputs.keys()
        for name, port in face.outputs.items():
            shape = face.present(name, outputs[name]).shape
            assert len(shape) == len(port.shape)
            assert all(want in (None, have) for want, have in zip(port.shape, shape, strict=True))


def test_faces_take_several_rows(served):
    servable, runtime = served
    face = servable.faces["act"]
    pictures = torch.from_numpy(np.stack([GREY, GREY, GREY]))[:, None]
    values = face.prepare(face.check({"frames": pictures, "goal_frames": pictures, "seed": 5}))
    assert runtime.submit("act", values).result(20).outputs["actions"].shape[0] == 3
    with pytest.raises(InvalidInputError, match="rows differ"):
        face.prepare(face.check({"frames": pictures, "goal_frames": pictures[:2]}))


@pytest.mark.parametrize(
    ("observation", "said"),
    [
        ({KEYS[0]: GREY}, "lacks 'observation/goal_image'"),
        (seen(**{"observation/imag": GREY}), "did you mean 'observation/image'"),
        (seen(**{KEYS[0]: GREY[:32]}), "32x64 pixels"),
        (seen(**{KEYS[0]: GREY.astype(np.float32)}), "uint8"),
        (seen(**{KEYS[1]: GREY[..., 0]}), "shape"),
        (seen(**{KEYS[1]: "goal.png"}), "is a str"),
    ],
)
def test_observations_are_checked(observation, said):
    with pytest.raises(InvalidInputError, match=said):
        look(observation, 64)


@pytest.mark.parametrize("options", [{"previous": np.zeros((3, 2), np.float32)}, {"delay": 2}])
def test_chunks_do_not_go_on_from_the_last_one(served, options):
    with pytest.raises(InvalidInputError, match=f"{next(iter(options))} is given"):
        ask(served, **options)


@pytest.mark.parametrize("seed", [-1, 2**63, 1.5, True])
def test_seeds_are_checked(seed):
    with pytest.raises(InvalidInputError, match="seed"):
        seed_of(seed)


def test_a_picture_may_be_used_again_at_once():
    picture = GREY.copy()
    frames = look({KEYS[0]: picture, KEYS[1]: GREY}, 64)["frames"]
    picture[:] = 0
    assert frames.float().mean() == 127


def test_weights_that_are_not_there():
    with pytest.raises(UnavailableError, match="flow_wall"):
        load_flow_policy_family("flow_wall", FamilyConfig())
