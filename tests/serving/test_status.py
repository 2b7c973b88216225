"""Errors become statuses with details, and statuses errors again."""

from __future__ import annotations

import grpc
import pytest
from google.rpc import error_details_pb2

from mstar_plan import errors
from mstar_plan.serving.status import CODES, MAX_TEXT, code_of, status_of


def every_error(kind: type[errors.MStarError] = errors.MStarError) -> list[type[errors.MStarError]]:
    return [kind, *(each for child in kind.__subclasses__() for each in every_error(child))]


def detail(status, kind):
    found = kind()
    return found if any(each.Unpack(found) for each in status.details) else None


@pytest.mark.parametrize("kind", every_error(), ids=lambda k: k.__name__)
def test_every_error_has_a_code_and_its_reason(kind):
    status = status_of(kind("what is wrong", field="goal"))
    assert status.code == code_of(kind("x")).value[0] != grpc.StatusCode.OK.value[0]
    info = detail(status, error_details_pb2.ErrorInfo)
    assert (info.reason, info.domain, info.metadata["field"]) == (kind.reason, "plan.mstar", "goal")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.WalkError("x"), grpc.StatusCode.INVALID_ARGUMENT),
        (errors.SessionExpiredError("x"), grpc.StatusCode.NOT_FOUND),
        (errors.LimitExceededError("x"), grpc.StatusCode.RESOURCE_EXHAUSTED),
        (errors.OverloadedError("x"), grpc.StatusCode.RESOURCE_EXHAUSTED),
        (errors.DeadlineError("x"), grpc.StatusCode.DEADLINE_EXCEEDED),
        (errors.UnavailableError("x"), grpc.StatusCode.UNAVAILABLE),
        (errors.ComponentError("x"), grpc.StatusCode.INTERNAL),
    ],
)
def test_codes(error, code):
    assert code_of(error) is code


def test_when_to_come_again():
    delay = detail(
        status_of(errors.OverloadedError("full", retry_after_s=1.5)), error_details_pb2.RetryInfo
    ).retry_delay
    assert (delay.seconds, delay.nanos) == (1, 500_000_000)
    assert detail(status_of(errors.UnavailableError("x")), error_details_pb2.RetryInfo) is not None
    assert detail(status_of(errors.NotFoundError("x")), error_details_pb2.RetryInfo) is None


def test_the_field_at_fault():
    (violation,) = detail(
        status_of(errors.InvalidInputError("bad", field="goal")), error_details_pb2.BadRequest
    ).field_violations
    assert (violation.field, violation.description) == ("goal", "bad")


def test_texts_are_bounded_and_plain():
    status = status_of(errors.InvalidInputError("ü" * 5000, field="f" * 5000))
    assert len(status.message) <= MAX_TEXT
    assert status.message.isascii()
    assert len(status.SerializeToString()) < 8192


def test_a_subclass_never_stands_behind_its_parent():
    kinds = list(CODES)
    for i, kind in enumerate(kinds):
        assert not any(issubclass(kind, earlier) for earlier in kinds[:i])
