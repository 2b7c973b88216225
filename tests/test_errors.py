"""The error tree: who is below whom, what travels with an error, and the hint for a misspelt name."""

from __future__ import annotations

import inspect

import pytest

from mstar_plan import errors
from mstar_plan.errors import InvalidInputError, MStarError, OverloadedError, did_you_mean

TREE = {
    "InvalidInputError": "MStarError",
    "WalkError": "InvalidInputError",
    "ConfigError": "InvalidInputError",
    "WeightsError": "InvalidInputError",
    "NotFoundError": "MStarError",
    "SessionExpiredError": "NotFoundError",
    "LimitExceededError": "MStarError",
    "OverloadedError": "MStarError",
    "DeadlineError": "MStarError",
    "CancelledError": "MStarError",
    "UnavailableError": "MStarError",
    "ComponentError": "MStarError",
}


def classes() -> list[type[MStarError]]:
    return [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, MStarError)]


def test_the_tree_is_the_one_that_is_drawn() -> None:
    assert {c.__name__: c.__base__.__name__ for c in classes() if c is not MStarError} == TREE
    drawn = [line.split("-- ")[1].split()[0] for line in (errors.__doc__ or "").splitlines() if "-- " in line]
    assert sorted(drawn) == sorted(TREE)


def test_every_error_has_a_reason_of_its_own() -> None:
    reasons = [c.reason for c in classes()]
    assert len(set(reasons)) == len(reasons)
    assert all(reason == reason.upper() for reason in reasons)


@pytest.mark.parametrize("error", classes())
def test_an_error_carries_its_message_and_field(error: type[MStarError]) -> None:
    made = error("horizon is 99; at most 64", field="horizon")
    assert str(made) == "horizon is 99; at most 64"
    assert made.field == "horizon"
    assert error("x").field == ""


def test_details_are_a_copy() -> None:
    details = {"limit": "64"}
    made = InvalidInputError("x", details=details)
    details["limit"] = "1"
    assert made.details == {"limit": "64"}
    assert InvalidInputError("x").details == {}


def test_an_overload_says_when_to_come_back() -> None:
    made = OverloadedError("the queue of 8 is full", retry_after_s=0.25, field="queue")
    assert made.retry_after_s == 0.25
    assert made.details == {"retry_after_s": "0.250"}
    assert made.field == "queue"


@pytest.mark.parametrize(
    ("name", "known", "tail"),
    [
        ("planer", ["planner", "model"], "; did you mean 'planner'? (known: model, planner)"),
        ("zzz", ["b", "a"], "; known: a, b"),
        ("x", [], "; known: none"),
    ],
)
def test_did_you_mean(name: str, known: list[str], tail: str) -> None:
    assert did_you_mean(name, known) == tail
    assert did_you_mean(name, iter(known)) == tail
