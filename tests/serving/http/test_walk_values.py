"""Values as JSON: every dtype there and back in both forms, and what JSON cannot hold."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from mstar_plan.errors import ComponentError, InvalidInputError, LimitExceededError
from mstar_plan.families.face import DTYPES, Port
from mstar_plan.serving.http.walk_values import told, value_of


@pytest.mark.parametrize("encoding", ["list", "base64"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_there_and_back(dtype: str, encoding: Any) -> None:
    numbers = torch.tensor([[0, 1, 2], [3, 100, 0]])
    want = numbers.bool() if dtype == "bool" else numbers.to(DTYPES[dtype])
    sent = json.loads(json.dumps(told(want, encoding)))
    assert (sent["dtype"], sent["shape"]) == (dtype, [2, 3])
    got = value_of("x", sent, Port("tensor", dtype, (None, 3)))
    assert got.dtype == DTYPES[dtype]
    assert torch.equal(got, want)


def test_nested_and_flat_numbers_are_the_same() -> None:
    port = Port("tensor", "int64", (2, 2))
    nested = value_of("x", [[1, 2], [3, 4]], port)
    assert torch.equal(nested, value_of("x", {"shape": [2, 2], "data": [1, 2, 3, 4]}, port))
    assert value_of("x", 5, port).shape == ()


@pytest.mark.parametrize(
    ("dtype", "number"),
    [("uint8", 256), ("uint8", -1), ("int8", 128), ("int64", 2**63), ("float16", 1e6), ("int32", 1.0)],
)
def test_numbers_that_do_not_fit(dtype: str, number: Any) -> None:
    with pytest.raises(InvalidInputError, match="x"):
        value_of("x", [number], Port("tensor", dtype, (1,)))


def test_what_is_not_finite_goes_out_as_text() -> None:
    values = torch.tensor([float("nan"), float("inf"), -float("inf"), 1.0])
    assert told(values, "list")["data"] == ["NaN", "Infinity", "-Infinity", 1.0]
    assert told({"a": (float("nan"), None, True)}, "list") == {"a": ["NaN", None, True]}
    json.dumps(told(values, "list"), allow_nan=False)


def test_what_has_no_form() -> None:
    with pytest.raises(ComponentError, match="object"):
        told(object(), "list")


def test_depth_is_bounded() -> None:
    deep: Any = 1
    for _ in range(100):
        deep = [deep]
    with pytest.raises((InvalidInputError, LimitExceededError), match="x"):
        value_of("x", deep, Port("tensor", "float32", (1,)))
