"""Sessions are bounded in number and in time, by a clock that the test moves."""

from __future__ import annotations

import pytest

from mstar_plan.errors import InvalidInputError, LimitExceededError, NotFoundError, OverloadedError, SessionExpiredError
from mstar_plan.serving.limits import ServerLimits
from mstar_plan.serving.sessions import SessionStore

LIMITS = ServerLimits(max_sessions=2, session_ttl_s=10, max_session_ttl_s=100)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> SessionStore:
    return SessionStore(LIMITS, clock)


def test_ids_cannot_be_guessed_and_do_not_repeat(store, solver):
    first, second = store.create("toy", solver), store.create("toy", solver)
    assert first.session_id != second.session_id
    assert len(first.session_id) == 22
    assert store.get(first.session_id) is first


def test_a_call_gives_a_session_its_time_again(store, solver, clock):
    session = store.create("toy", solver)
    for _ in range(5):
        clock.now += 9
        assert store.get(session.session_id) is session
    clock.now += 10
    with pytest.raises(SessionExpiredError, match="expired after 10 s"):
        store.get(session.session_id)
    assert len(store) == 0


def test_ended_and_unknown_are_told_apart(store, solver):
    session = store.create("toy", solver)
    store.close(session.session_id)
    with pytest.raises(SessionExpiredError, match="was closed"):
        store.get(session.session_id)
    with pytest.raises(NotFoundError) as caught:
        store.get("never")
    assert not isinstance(caught.value, SessionExpiredError)


def test_no_more_than_allowed(store, solver, clock):
    store.create("toy", solver, ttl_s=3)
    store.create("toy", solver)
    with pytest.raises(OverloadedError, match="max_sessions is 2") as caught:
        store.create("toy", solver)
    assert caught.value.retry_after_s == pytest.approx(3)
    clock.now += 3
    store.create("toy", solver)


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"ttl_s": 0}, InvalidInputError),
        ({"ttl_s": float("nan")}, InvalidInputError),
        ({"ttl_s": 101}, LimitExceededError),
        ({"seed": -1}, InvalidInputError),
        ({"seed": 2**63}, InvalidInputError),
    ],
)
def test_bad_sessions(store, solver, options, kind):
    with pytest.raises(kind):
        store.create("toy", solver, **options)
    assert len(store) == 0
