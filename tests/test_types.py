"""The nouns check themselves: every wrong value is an InvalidInputError that names it and its cure."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest

from mstar_plan.errors import InvalidInputError
from mstar_plan.types import (
    ActionSpec,
    Controller,
    Goal,
    Observation,
    Plan,
    PlanRequest,
    PlanStatus,
    PlanTiming,
    WarmStart,
    check_image,
    finite_array,
)

FRAME = np.zeros((4, 6, 3), np.uint8)
SEEN = Observation(FRAME[None])


def spec(**changes: Any) -> ActionSpec:
    return ActionSpec(**{"low": [-1, -1], "high": [1, 2], "dt_s": 0.1, **changes})


def request(**changes: Any) -> PlanRequest:
    return PlanRequest(**{"observation": SEEN, "goal": Goal(frame=FRAME), **changes})


MISTAKES: list[tuple[Any, str, str]] = [
    # what, message, field
    (lambda: finite_array("text", "a", ndim=1), r"a is not a numeric array", "a"),
    (lambda: finite_array([[1], [1, 2]], "a", ndim=1), r"a is not a numeric array", "a"),
    (lambda: finite_array([[1.0]], "a", ndim=1), r"a has shape \(1, 1\); it needs 1 dimensions", "a"),
    (lambda: finite_array([1, np.nan, np.inf], "a", ndim=1), r"a holds 2 value\(s\) .*; send finite numbers", "a"),
    (lambda: finite_array([1e300], "a", ndim=1), r"a holds 1 value\(s\) that are NaN or infinite", "a"),
    (lambda: check_image([[0]], "i", ndim=3), r"i is a list; send a uint8 RGB array", "i"),
    (lambda: check_image(FRAME.astype(float), "i", ndim=3), r"i has dtype float64; send uint8 in 0..255", "i"),
    (lambda: check_image(FRAME[..., :1], "i", ndim=3), r"i has shape \(4, 6, 1\); it needs \[H, W, 3\]", "i"),
    (lambda: check_image(FRAME, "i", ndim=4), r"it needs \[T, H, W, 3\] with no empty side", "i"),
    (lambda: check_image(FRAME[:0], "i", ndim=3), r"i has shape \(0, 6, 3\)", "i"),
    (lambda: Observation(FRAME), r"observation.frames has shape \(4, 6, 3\)", "observation.frames"),
    (lambda: Observation(FRAME[None], state=[np.nan]), r"observation.state holds 1", "observation.state"),
    (Goal, r"goal is missing; give exactly one of frame, latent, state", "goal"),
    (lambda: Goal(frame=FRAME, state=np.zeros(2)), r"goal has frame and state; give exactly one", "goal"),
    (lambda: Goal(frame=FRAME[None]), r"goal.frame has shape", "goal.frame"),
    (lambda: Goal(latent=np.zeros(3)), r"goal.latent has shape \(3,\); it needs 2", "goal.latent"),
    (lambda: Goal(state=[np.inf]), r"goal.state holds 1", "goal.state"),
    (lambda: spec(low=[1, 1], high=[1, 2]), r"low \[1.0, 1.0\] and high \[1.0, 2.0\] do not pair up", "action"),
    (lambda: spec(low=[1]), r"do not pair up", "action"),
    (lambda: spec(dt_s=0.0), r"action.dt_s is 0.0; it needs a positive", "dt_s"),
    (lambda: spec(dt_s=np.nan), r"action.dt_s is nan", "dt_s"),
    (lambda: spec(names=("x",)), r"2 action dimensions, but names \('x',\)", "action"),
    (lambda: spec(units=("m", "m", "m")), r"units \('m', 'm', 'm'\)", "action"),
    (lambda: spec(max_delta=[1, 0]), r"action.max_delta \[1.0, 0.0\] needs 2 positive", "max_delta"),
    (lambda: spec(max_delta=[1]), r"needs 2 positive", "max_delta"),
    (
        lambda: WarmStart(np.zeros((3, 2)), np.zeros((5, 4, 2))),
        r"warm_start.elites has shape \(5, 4, 2\)",
        "warm_start",
    ),
    (lambda: WarmStart(np.zeros(3), np.zeros((0, 3))), r"warm_start.mean has shape", "warm_start.mean"),
    (lambda: request(seed=-1), r"seed is -1; it needs a whole 0 <= seed < 2\*\*63", "seed"),
    (lambda: request(seed=2**63), r"seed is 9223372036854775808", "seed"),
    (
        lambda: request(horizon=0),
        r"horizon is 0; it needs a whole number of at least 1, or none for the default",
        "horizon",
    ),
    (lambda: request(iterations=-2), r"iterations is -2", "iterations"),
    (lambda: request(samples=0), r"samples is 0", "samples"),
    (lambda: request(samples=2.5), r"samples is 2.5; it needs a whole number", "samples"),
    (lambda: request(horizon=True), r"horizon is True", "horizon"),
    (lambda: request(seed=0.5), r"seed is 0.5; it needs a whole", "seed"),
    (lambda: request(soft_time_s=0.0), r"soft_time_s is 0.0; it needs a positive", "soft_time_s"),
    (lambda: request(soft_time_s=np.inf), r"soft_time_s is inf", "soft_time_s"),
]


@pytest.mark.parametrize(("make", "message", "field"), MISTAKES)
def test_a_mistake_names_the_field_the_value_and_the_cure(make: Any, message: str, field: str) -> None:
    with pytest.raises(InvalidInputError, match=message) as raised:
        make()
    assert raised.value.field == field


def test_arrays_become_float32() -> None:
    assert finite_array([1, 2], "a", ndim=1).dtype == np.float32
    for array in (
        spec().low,
        spec(max_delta=[1, 2]).max_delta,
        Observation(FRAME[None], state=np.arange(3)).state,
        Goal(state=[1, 2]).state,
        Goal(latent=np.zeros((2, 3))).latent,
        WarmStart(np.zeros((3, 2)), np.zeros((0, 3, 2))).elites,
    ):
        assert array is not None
        assert array.dtype == np.float32


def test_an_image_is_passed_on_without_a_copy() -> None:
    assert Goal(frame=FRAME).frame is FRAME


def test_an_action_spec_names_its_dimensions() -> None:
    assert spec().size == 2
    assert (spec().names, spec().units) == (("a0", "a1"), ("1", "1"))
    assert spec(names=["x", "y"], units=["m", "m"]).names == ("x", "y")


def test_a_request_can_be_copied_with_changes_and_checks_them() -> None:
    first = request(horizon=5, seed=7)
    other = first.but(horizon=6)
    assert (other.horizon, other.seed, other.observation) == (6, 7, SEEN)
    assert first.horizon == 5
    with pytest.raises(InvalidInputError, match="horizon is 0"):
        first.but(horizon=0)


def test_nouns_are_frozen() -> None:
    plan = Plan(actions=np.zeros((3, 2), np.float32), cost=1.0, dt_s=0.1, status=PlanStatus.COMPLETE)
    for thing, field in (
        (SEEN, "seq"),
        (request(), "seed"),
        (plan, "cost"),
        (PlanTiming(), "total_ms"),
        (spec(), "low"),
    ):
        with pytest.raises(FrozenInstanceError):
            setattr(thing, field, 0)
    assert plan.timing == PlanTiming()


def test_what_a_controller_is() -> None:
    class Still:
        last_plan = None

        def reset(self, goal: Goal, seed: int = 0) -> None: ...

        def act(self, observation: Observation) -> Any:
            return np.zeros(2, np.float32)

    assert isinstance(Still(), Controller)
    assert not isinstance(object(), Controller)
