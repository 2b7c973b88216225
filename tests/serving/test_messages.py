"""The nouns of planning go over the wire and come back the same; what is missing or mixed is told."""

from __future__ import annotations

import numpy as np
import pytest

from mstar_plan.errors import InvalidInputError, LimitExceededError
from mstar_plan.serving.codec import encode_image, encode_tensor
from mstar_plan.serving.limits import ServerLimits
from mstar_plan.serving.messages import (
    decode_action_spec,
    decode_floats,
    decode_goal,
    decode_observation,
    decode_warm_start,
    encode_action_spec,
    encode_goal,
    encode_observation,
    encode_warm_start,
)
from mstar_plan.serving.proto.mstar.plan.v1 import planning_pb2 as pb
from mstar_plan.types import ActionSpec, Goal, Observation, WarmStart

LIMITS = ServerLimits(max_images=3)
FRAMES = np.random.default_rng(0).integers(0, 256, (2, 8, 6, 3), dtype=np.uint8)


def test_observations():
    back = decode_observation(encode_observation(Observation(FRAMES, np.ones(3), seq=9), "png"), LIMITS)
    np.testing.assert_array_equal(back.frames, FRAMES)
    np.testing.assert_array_equal(back.state, np.ones(3))
    assert back.seq == 9


@pytest.mark.parametrize(
    "goal",
    [Goal(frame=FRAMES[0]), Goal(latent=np.eye(2)), Goal(state=np.arange(3.0))],
    ids=["frame", "latent", "state"],
)
def test_goals(goal):
    back = decode_goal(encode_goal(goal, "raw"), LIMITS)
    for name in ("frame", "latent", "state"):
        np.testing.assert_equal(getattr(back, name), getattr(goal, name))


@pytest.mark.parametrize("elites", [0, 3])
def test_warm_starts(elites):
    warm = WarmStart(np.ones((4, 2)), np.full((elites, 4, 2), 0.5))
    back = decode_warm_start(encode_warm_start(warm), LIMITS)
    np.testing.assert_array_equal(back.mean, warm.mean)
    np.testing.assert_array_equal(back.elites, warm.elites)


def test_a_warm_start_without_elites():
    back = decode_warm_start(pb.WarmStart(mean=encode_tensor(np.zeros((4, 2), np.float32))), LIMITS)
    assert back.elites.shape == (0, 4, 2)


@pytest.mark.parametrize("max_delta", [None, [0.1, 0.2]])
def test_action_specs(max_delta):
    spec = ActionSpec([-1, 0], [1, 2], 0.25, ("x", "grip"), ("m", "1"), max_delta)
    back = decode_action_spec(encode_action_spec(spec), LIMITS)
    for name in ("low", "high", "dt_s", "names", "units", "max_delta"):
        np.testing.assert_equal(getattr(back, name), getattr(spec, name))


def test_integers_become_floats_and_bools_do_not():
    assert decode_floats(encode_tensor(np.arange(3)), "x", LIMITS, ndim=1).dtype == np.float32
    with pytest.raises(InvalidInputError, match="dtype bool"):
        decode_floats(encode_tensor(np.array([True])), "x", LIMITS, ndim=1)
    with pytest.raises(InvalidInputError, match="NaN or infinite"):
        decode_floats(encode_tensor(np.array([1e300])), "x", LIMITS, ndim=1)


def images(*sizes, cameras=()):
    made = [encode_image(np.zeros((*size, 3), np.uint8)) for size in sizes]
    for image, camera in zip(made, cameras, strict=False):
        image.camera = camera
    return pb.Observation(images=made)


@pytest.mark.parametrize(
    ("message", "kind", "words"),
    [
        (pb.Observation(), InvalidInputError, "no images"),
        (images((4, 4), (4, 5)), InvalidInputError, "one size"),
        (images((4, 4), (4, 4), cameras=("left", "right")), InvalidInputError, "2 cameras"),
        (images(*[(4, 4)] * 4), LimitExceededError, "max_images is 3"),
    ],
)
def test_observations_that_make_no_sense(message, kind, words):
    with pytest.raises(kind, match=words):
        decode_observation(message, LIMITS)


def test_two_states_of_one_name():
    message = encode_observation(Observation(FRAMES, np.ones(3)), "raw")
    message.state.add().CopyFrom(message.state[0])
    with pytest.raises(InvalidInputError, match="name each once"):
        decode_observation(message, LIMITS)
