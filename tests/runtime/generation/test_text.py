"""Options check themselves: what cannot be meant is refused by name."""

from __future__ import annotations

import pytest

from mstar_plan.errors import InvalidInputError
from mstar_plan.runtime.generation.text import TextOptions


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_p": 1.1}, "top_p"),
        ({"top_k": -1}, "top_k"),
        ({"min_p": 2.0}, "min_p"),
        ({"repetition_penalty": 0.0}, "repetition_penalty"),
        ({"logprobs": 21}, "logprobs"),
        ({"n": 0}, "n"),
        ({"stop": ("",)}, "stop"),
        ({"stop": ("x",) * 17}, "stop"),
        ({"json_schema": {}, "grammar": "start: x"}, "grammar"),
        ({"logit_bias": {1: float("inf")}}, "logit_bias"),
        ({"logit_bias": {1: float("nan")}}, "logit_bias"),
        ({"logit_bias": {1: -1e30}}, "logit_bias"),
        ({"ignore_end": True, "grammar": "start: x"}, "ignore_end"),
        ({"ignore_end": True, "json_schema": {}}, "ignore_end"),
    ],
)
def test_mistakes(settings: dict, field: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        TextOptions(**settings)
    assert caught.value.field == field


def test_what_is_meant_passes() -> None:
    assert TextOptions(max_tokens=1, temperature=0, top_p=0.1, n=16, logprobs=0, seed=2**64 - 1).n == 16
