"""Arrays in MessagePack: the same as openpi's own packer, whatever it packs, and nothing that could be harmful."""

from __future__ import annotations

from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openpi_client import msgpack_numpy

from mstar_plan.errors import InvalidInputError, LimitExceededError
from mstar_plan.serving.http.msgpack_arrays import pack, unpack

DTYPES = ["?", "|i1", "|u1", "<i2", ">i2", "<u4", "<i8", "<f2", "<f4", ">f4", "<f8", ">f8"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 4), (2, 3, 4)])
def test_arrays_of_openpis_packer_and_back(dtype: str, shape: tuple[int, ...]) -> None:
    array = np.ones(shape, dtype)
    got = unpack(msgpack_numpy.packb({"a": array}), 10**6)["a"]
    np.testing.assert_array_equal(got, array)
    assert got.flags.writeable
    assert got.flags.aligned
    assert got.dtype.isnative
    back = msgpack_numpy.unpackb(pack({"a": got}))["a"]
    np.testing.assert_array_equal(back, array)


def test_scalars_and_plain_values() -> None:
    sent = {"f": np.float32(0.5), "i": np.int64(-3), "b": np.bool_(True), "t": "é", "n": None, "l": [1, 2.5]}
    got = unpack(msgpack_numpy.packb(sent), 10**6)
    assert got == {"f": 0.5, "i": -3, "b": True, "t": "é", "n": None, "l": [1, 2.5]}


@pytest.mark.parametrize(
    "dtype", ["O", "V4", "S4", "U4", "c16", "M8[s]", "m8[s]", "f4,f4", "(2,)f4", "<f16", "", 5, None, "x" * 100]
)
def test_dtypes_that_are_no_numbers(dtype: Any) -> None:
    told = {b"__ndarray__": True, b"dtype": dtype, b"shape": [1], b"data": b"\0" * 16}
    with pytest.raises(InvalidInputError, match="dtype"):
        unpack(msgpack.packb({"a": told}), 10**6)


def test_too_deep_and_too_many() -> None:
    deep: Any = 1
    for _ in range(12):
        deep = {"a": deep}
    for value in (deep, {"a": [[0] * 100] * 100}):
        with pytest.raises(LimitExceededError, match="nested"):
            unpack(msgpack.packb(value), 10**6)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_answered(data: bytes) -> None:
    try:
        unpack(data, 10**6)
    except (InvalidInputError, LimitExceededError):
        return


def test_what_cannot_be_sent() -> None:
    for value in (np.array([object()]), object(), np.array(["x"])):
        with pytest.raises(TypeError):
            pack({"a": value})
