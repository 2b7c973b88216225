"""Errors: one table from every error of the project to a code, a body and headers."""

from __future__ import annotations

import pytest

from mstar_plan import errors
from mstar_plan.errors import ComponentError, LimitExceededError, MStarError, NotFoundError, OverloadedError
from mstar_plan.serving.http.errors import (
    BodyTooLargeError,
    as_ours,
    body_of,
    code_of,
    encoded,
    headers_of,
    of_validation,
)

CODES = {
    "MStarError": 500, "InvalidInputError": 400, "WalkError": 400, "ConfigError": 400, "WeightsError": 400,
    "NotFoundError": 404, "SessionExpiredError": 404, "LimitExceededError": 400, "OverloadedError": 429,
    "DeadlineError": 504, "CancelledError": 499, "UnavailableError": 503, "ComponentError": 500,
}  # fmt: skip


def test_every_error_has_a_code() -> None:
    found = {
        name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, MStarError)
    }
    assert {name: code_of(kind("x")) for name, kind in found.items()} == CODES
    assert code_of(BodyTooLargeError("x")) == 413


def test_the_body_is_openais() -> None:
    assert body_of(LimitExceededError("too much", field="n")) == {
        "error": {"message": "too much", "type": "invalid_request_error", "param": "n", "code": "limit_exceeded"}
    }
    assert body_of(NotFoundError("x", field="model"))["error"]["code"] == "model_not_found"
    assert body_of(ComponentError("x"))["error"]["param"] is None
    assert len(encoded(MStarError("x" * 10**6))) < 3000
    assert b"\\\\udcff" in encoded(MStarError("\udcff"))


@pytest.mark.parametrize(("wait_s", "whole"), [(0.01, "1"), (1.2, "2"), (60.0, "60")])
def test_when_to_come_again(wait_s: float, whole: str) -> None:
    headers = headers_of(OverloadedError("x", retry_after_s=wait_s))
    assert (headers["retry-after"], headers["retry-after-ms"]) == (whole, str(int(1000 * wait_s)))
    assert headers_of(errors.UnavailableError("x"))["retry-after"] == "1"
    assert headers_of(errors.InvalidInputError("x")) == {}


def test_what_is_not_ours_is_the_servers_fault(caplog: pytest.LogCaptureFixture) -> None:
    mine = LimitExceededError("x")
    assert as_ours(mine) is mine
    assert as_ours(ExceptionGroup("g", [ExceptionGroup("h", [mine])])) is mine
    other = as_ours(KeyError("secret"))
    assert code_of(other) == 500
    assert "secret" not in str(other)
    assert "secret" in caplog.text


def test_problems_name_their_place() -> None:
    def told(*loc: str | int, kind: str = "missing") -> tuple[str, str]:
        error = of_validation([{"type": kind, "loc": loc, "msg": "m", "input": 5}])
        return error.field, str(error)

    assert told("body", "messages", 0, "content") == ("messages[0].content", "messages[0].content is missing")
    assert told("body", "x", kind="int_type") == ("x", "x is 5: m")
    assert told("body", kind="int_type") == ("body", "body is 5: m")
    assert told("body", "prompt", "list[str]", 3, "str", kind="t")[0] == "prompt[3]"
    assert "not offered" in told("body", "frob", kind="extra_forbidden")[1]
