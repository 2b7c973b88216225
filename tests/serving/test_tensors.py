"""Tensors as bytes: exact both ways for every dtype, and every damage is told before memory is taken for it."""

from __future__ import annotations

from contextlib import suppress

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mstar_plan.errors import ComponentError, InvalidInputError, LimitExceededError
from mstar_plan.serving.limits import ServerLimits
from mstar_plan.serving.tensors import DTYPE_NAMES, element_count, from_raw, to_raw

SIZES = {name: getattr(torch, name).itemsize for name in DTYPE_NAMES}


@settings(deadline=None, max_examples=100)
@given(st.sampled_from(DTYPE_NAMES), st.lists(st.integers(0, 4), max_size=4), st.data())
def test_bytes_come_back_as_they_were(dtype, shape, data):
    count = element_count("x", shape)
    most = 1 if dtype == "bool" else 255
    sent = bytes(data.draw(st.lists(st.integers(0, most), min_size=(n := count * SIZES[dtype]), max_size=n)))
    tensor = from_raw("x", dtype, shape, sent)
    assert (tensor.dtype, list(tensor.shape)) == (getattr(torch, dtype), shape)
    assert to_raw(tensor) == (dtype, shape, sent)


@pytest.mark.parametrize(
    ("tensor", "data"),
    [
        (torch.tensor([1.0, -2.0], dtype=torch.bfloat16), "803f 00c0"),
        (torch.tensor([1.0, -2.0], dtype=torch.float16), "003c 00c0"),
        (torch.tensor([True, False]), "01 00"),
        (torch.tensor([258, -1], dtype=torch.int16), "0201 ffff"),
        (torch.tensor([1.0]), "0000803f"),
    ],
)
def test_bytes_are_little_endian(tensor, data):
    assert to_raw(tensor)[2] == bytes.fromhex(data)
    assert torch.equal(from_raw("x", to_raw(tensor)[0], tensor.shape, bytes.fromhex(data)), tensor)


def test_a_tensor_has_memory_of_its_own_and_a_view_travels_row_by_row():
    data = bytes(range(6))
    first, second = (from_raw("x", "uint8", [2, 3], data) for _ in range(2))
    first += 1
    assert second.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert to_raw(second.T) == ("uint8", [3, 2], bytes([0, 3, 1, 4, 2, 5]))
    with torch.inference_mode():
        inferred = second * 2
    assert to_raw(inferred)[2] == bytes([0, 2, 4, 6, 8, 10])


@pytest.mark.parametrize(
    ("dtype", "shape", "data", "kind", "words"),
    [
        ("complex64", [1], b"12345678", InvalidInputError, "complex64"),
        ("flaot32", [1], b"1234", InvalidInputError, "did you mean 'float32'"),
        ("float32", [2], b"1234", InvalidInputError, "truncated.*needs 8 bytes, got 4"),
        ("uint8", [1], b"1234", InvalidInputError, "too long"),
        ("uint8", [-1, -4], b"1234", InvalidInputError, "negative"),
        ("bool", [2], b"\x01\x07", InvalidInputError, "neither 0 nor 1"),
        ("uint8", [2**40, 2**40], b"", LimitExceededError, "max_tensor_elements"),
        ("uint8", [0, 2**62], b"", LimitExceededError, "max_tensor_elements"),
        ("uint8", [1] * 9, b"1", LimitExceededError, "max_tensor_rank"),
        ("float64", [11], b"1" * 88, LimitExceededError, "max_tensor_elements is 10"),
    ],
)
def test_damage_is_told(dtype, shape, data, kind, words):
    with pytest.raises(kind, match=words) as caught:
        from_raw("x", dtype, shape, data, ServerLimits(max_tensor_elements=10))
    assert caught.value.field == "x"


@settings(deadline=None, max_examples=200)
@given(st.text(max_size=8) | st.sampled_from(DTYPE_NAMES), st.lists(st.integers()), st.binary(max_size=64))
def test_random_claims_never_break_it(dtype, shape, data):
    with suppress(InvalidInputError, LimitExceededError):
        assert from_raw("x", dtype, shape, data).numel() * SIZES[dtype] == len(data)


def test_what_does_not_travel():
    with pytest.raises(ComponentError, match="complex64"):
        to_raw(torch.zeros(1, dtype=torch.complex64))
