"""Observations: keys, types and options of robots' messages (the wire itself is tested in test_openpi.py)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from http_world import Driver, Log

from mstar_plan.errors import InvalidInputError, LimitExceededError
from mstar_plan.serving.http.msgpack_arrays import pack, unpack
from mstar_plan.serving.http.observations import query_of

POLICY = Driver(Log())


def read(message: Any) -> Any:
    return query_of(pack(message), POLICY, 10**6)


def test_scalars_lists_and_nested_maps() -> None:
    got = read({"observation": {"state": [1, 2, 3]}, "a": {"b": {"c": np.float32(1.5)}}, "n": 2, "prompt": "go"})
    assert set(got.observation) == {"observation/state", "a/b/c", "n", "prompt"}
    assert got.observation["a/b/c"] == 1.5
    assert got.observation["observation/state"].tolist() == [1.0, 2.0, 3.0]
    assert (got.reset, got.seed, got.delay) == (False, None, 0)


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8", "<i4", "|u1", "<f2"])
def test_states_become_float32_whatever_they_were(dtype: str) -> None:
    got = read({"observation/state": np.array([1, 2, 3], dtype)}).observation["observation/state"]
    assert (got.dtype, got.tolist()) == (np.float32, [1.0, 2.0, 3.0])


def test_images_keep_their_type_and_are_turned_if_channels_come_first() -> None:
    image = np.random.default_rng(0).integers(0, 256, (3, 5, 7), dtype=np.uint8)
    got = read({"observation/image": image}).observation["observation/image"]
    np.testing.assert_array_equal(got, np.moveaxis(image, 0, -1))
    assert got.flags.writeable
    upright = np.zeros((5, 7, 3), np.uint8)
    assert read({"observation/image": upright}).observation["observation/image"].shape == (5, 7, 3)


def test_options() -> None:
    got = read({"options": {"seed": -5, "delay": 2, "previous": np.ones((2, 3)), "deadline_s": 1}})
    assert (got.seed, got.delay, got.deadline_s) == (-5, 2, 1.0)
    assert got.previous.shape == (2, 3)
    assert read({"options": {"seed": None}}).seed is None


@pytest.mark.parametrize(
    "options",
    [
        {"previous": np.ones(3)},
        {"previous": "x"},
        {"previous": np.full((1, 1), np.inf)},
        {"seed": 1.5},
        {"delay": True},
    ],
)
def test_options_that_are_none(options: Any) -> None:
    with pytest.raises(InvalidInputError, match="options"):
        read({"options": options})


def test_a_message_over_the_limit() -> None:
    data = pack({"a": np.zeros(1000)})
    with pytest.raises(LimitExceededError, match="at most 100"):
        query_of(data, POLICY, 100)
    assert unpack(data, 10**5)["a"].shape == (1000,)
