"""Faces check what comes in: names, kinds, dtypes, shapes, sizes, finite numbers; and every port has a sample."""

from __future__ import annotations

import pytest
import torch

from mstar_plan.errors import InvalidInputError, LimitExceededError
from mstar_plan.families.face import DTYPES, Port, WalkFace

FACE = WalkFace(
    "walk",
    inputs={
        "x": Port("tensor", "float32", (None, 3), "numbers", most=12),
        "text": Port("text", default="", most=5),
        "count": Port("integer", default=1),
        "level": Port("number", default=0.5),
        "on": Port("flag", default=False),
        "more": Port("json", default=None),
    },
    outputs={},
)
X = torch.zeros(2, 3)


def test_defaults_are_filled_in() -> None:
    assert FACE.check({"x": X}) == {"x": X, "text": "", "count": 1, "level": 0.5, "on": False, "more": None}
    assert FACE.check({"x": X, "level": 2})["level"] == 2


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "needs input 'x'"),
        ({"x": X, "texd": ""}, "did you mean 'text'"),
        ({"x": X.double()}, "is float64; send float32"),
        ({"x": torch.zeros(2, 4)}, r"shape \[2, 4\]; send \['any', 3\]"),
        ({"x": torch.zeros(3)}, "shape"),
        ({"x": torch.zeros(0, 3)}, "shape"),
        ({"x": X / 0}, "NaN"),
        ({"x": [1, 2, 3]}, "send a tensor"),
        ({"x": X, "text": 3}, "send text"),
        ({"x": X, "count": 1.5}, "send integer"),
        ({"x": X, "count": True}, "send integer"),
        ({"x": X, "count": 2**64}, "64 bits"),
        ({"x": X, "level": float("nan")}, "finite"),
        ({"x": X, "on": 1}, "send flag"),
        ({"x": X, "more": object()}, "send json"),
    ],
)
def test_mistakes(values: dict, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        FACE.check(values)


@pytest.mark.parametrize("values", [{"x": torch.zeros(5, 3)}, {"x": X, "text": "longer"}])
def test_too_large(values: dict) -> None:
    with pytest.raises(LimitExceededError, match="at most"):
        FACE.check(values)


@pytest.mark.parametrize("port", [*FACE.inputs.values(), Port("text"), Port("flag"), Port("tensor", "int8", (1, None))])
def test_samples_pass(port: Port) -> None:
    face = WalkFace("walk", {"p": port}, {})
    assert "p" in face.check({"p": port.sample()})


def test_dtypes_have_their_names() -> None:
    assert all(str(dtype) == f"torch.{name}" for name, dtype in DTYPES.items())


def test_nothing_is_prepared_or_presented_unless_asked() -> None:
    assert FACE.prepare({"x": 1}) == {"x": 1}
    assert FACE.present("wire", 3) == 3
