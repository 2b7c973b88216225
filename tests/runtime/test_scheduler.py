"""Scheduler: earliest deadline, then fullest batch, then the least served; and nobody waits for ever."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mstar_plan.errors import InvalidInputError
from mstar_plan.runtime.flight import Call
from mstar_plan.runtime.scheduler import Scheduler, SchedulerConfig
from mstar_plan.walks.batch import Batch
from mstar_plan.walks.step import Node

COMPONENTS = {name: object() for name in "abcdefgh"}


def call(component: str, *, session: str = "", urgency: float = math.inf, rows: int = 1, width: int = 1) -> Call:
    """A call of a flight of its own."""
    job = SimpleNamespace(session=session, deterministic=False)
    route = SimpleNamespace(components=COMPONENTS)
    flight: Any = SimpleNamespace(job=job, urgency=urgency, route=route, request=object())
    return Call(flight, Node(component, ("x",), ("y",)), Batch({"x": torch.zeros(rows, width)}, rows))


def fill(scheduler: Scheduler, *calls: Call) -> None:
    for each in calls:
        scheduler.add(each)


def drain(scheduler: Scheduler) -> list[list[Call]]:
    turns = []
    while scheduler:
        turns.append(scheduler.next())
    return turns


def names(calls: list[Call]) -> str:
    return "".join(c.node.name for c in calls)


def test_nothing_waits() -> None:
    assert Scheduler().next() == []


def test_the_earliest_deadline_goes_first() -> None:
    scheduler = Scheduler()
    fill(scheduler, call("a"), call("b", urgency=3.0), call("c", urgency=1.0), call("d", urgency=2.0))
    assert [names(t) for t in drain(scheduler)] == ["c", "d", "b", "a"]


def test_others_that_fit_ride_along_with_the_most_urgent() -> None:
    scheduler = Scheduler()
    fill(scheduler, call("a"), call("b"), call("b"), call("b"), call("a", urgency=1.0))
    assert [names(t) for t in drain(scheduler)] == ["aa", "bbb"]


def test_a_call_that_never_joins_is_not_kept_waiting_by_batches() -> None:
    scheduler = Scheduler(SchedulerConfig(oldest_every=1000))
    alone = call("c")
    alone.flight.job.deterministic = True
    fill(scheduler, call("a"), call("a"), call("a"), alone)
    assert [names(t) for t in drain(scheduler)] == ["c", "aaa"]


def test_of_equal_deadlines_the_fullest_batch_goes_first() -> None:
    scheduler = Scheduler()
    fill(scheduler, call("a", urgency=1.001), call("b", urgency=1.002), call("b", urgency=1.003))
    assert [names(t) for t in drain(scheduler)] == ["bb", "a"]


def test_rows_make_a_batch_full_not_calls() -> None:
    scheduler = Scheduler()
    fill(scheduler, call("a", rows=8), call("b"), call("b"))
    assert [names(t) for t in drain(scheduler)] == ["a", "bb"]


def test_other_shapes_are_other_batches() -> None:
    scheduler = Scheduler()
    fill(scheduler, call("a", width=1), call("a", width=2), call("a", width=1))
    assert [len(t) for t in drain(scheduler)] == [2, 1]


def test_of_equal_batches_the_least_served_session_goes_first() -> None:
    scheduler = Scheduler()
    fill(scheduler, call("a", session="greedy"), call("b", session="modest"))
    scheduler.served("greedy", 1.0)
    assert [names(t) for t in drain(scheduler)] == ["b", "a"]


def test_the_least_served_get_the_places_of_a_batch_that_is_too_small() -> None:
    scheduler = Scheduler(SchedulerConfig(max_batch=2))
    greedy, modest = [call("a", session="greedy") for _ in range(3)], call("a", session="modest")
    fill(scheduler, *greedy, modest)
    scheduler.served("greedy", 1.0)
    assert scheduler.next() == [modest, greedy[0]]


def test_a_session_with_many_requests_gets_no_more_than_one_with_few() -> None:
    scheduler = Scheduler(SchedulerConfig(max_batch=1))
    fill(scheduler, *(call("a", session="many") for _ in range(30)), *(call("b", session="few") for _ in range(10)))
    first: list[str] = []
    while len(first) < 20:
        [one] = scheduler.next()
        scheduler.served(one.flight.job.session, 0.01)
        first.append(one.flight.job.session)
    assert first.count("few") == 10


def test_a_newcomer_starts_level_and_cannot_claim_the_past() -> None:
    scheduler = Scheduler(SchedulerConfig(max_batch=1))
    fill(scheduler, *(call("a", session="old") for _ in range(100)))
    for _ in range(50):
        scheduler.next()
        scheduler.served("old", 1.0)
    fill(scheduler, *(call("b", session="new") for _ in range(50)))
    turns = []
    for _ in range(20):
        [one] = scheduler.next()
        scheduler.served(one.flight.job.session, 1.0)
        turns.append(one.flight.job.session)
    assert 9 <= turns.count("old") <= 11


def test_nobody_waits_for_ever() -> None:
    scheduler = Scheduler(SchedulerConfig(oldest_every=10))
    patient, late = call("a"), call("c")
    scheduler.add(patient)
    turns = []
    for _ in range(20):
        fill(scheduler, call("b", urgency=1.0), call("b", urgency=1.0))
        turns.append(scheduler.next())
        scheduler.add(late) if len(turns) == 1 else None
    assert turns[9] == [patient]
    assert turns[19] == [late]


def test_the_calls_of_a_request_can_be_taken_out() -> None:
    scheduler = Scheduler()
    calls = [call("a"), call("a"), call("b"), call("c")]
    fill(scheduler, *calls[:3])
    scheduler.next()  # groups what waits
    fill(scheduler, calls[3])
    left = next(c for c in calls[2:] if c.node.name == "b")
    assert scheduler.remove(left.flight.request) == [left]
    assert scheduler.remove(left.flight.request) == []
    assert names(scheduler.next()) == "c"
    assert len(scheduler) == 0


def test_sessions_that_are_gone_are_forgotten() -> None:
    scheduler = Scheduler()
    for i in range(5000):
        fill(scheduler, call("a", session=f"s{i}"), call("b", session=f"s{i}"))
        scheduler.next()
        scheduler.next()
        scheduler.served(f"s{i}", 0.0)
    assert len(scheduler._served) <= 1025


@given(
    kinds=st.lists(
        st.tuples(
            st.sampled_from("abc"), st.sampled_from("stu"), st.sampled_from([1.0, 2.0, math.inf]), st.integers(1, 5)
        ),
        max_size=30,
    ),
    max_batch=st.integers(1, 8),
)
def test_every_call_runs_once_in_batches_that_fit(kinds: list[Any], max_batch: int) -> None:
    scheduler = Scheduler(SchedulerConfig(max_batch=max_batch))
    calls = [call(c, session=s, urgency=u, rows=r) for c, s, u, r in kinds]
    fill(scheduler, *calls)
    turns = drain(scheduler)
    assert sorted(map(id, calls)) == sorted(id(c) for turn in turns for c in turn)
    for turn in turns:
        assert len({c.node.name for c in turn}) == 1
        assert len(turn) == 1 or sum(c.batch.size for c in turn) <= max_batch


@pytest.mark.parametrize(
    ("field", "value"),
    [("max_batch", 0), ("oldest_every", 0), ("deadline_window_s", 0.0), ("deadline_window_s", math.nan)],
)
def test_the_config_checks_itself(field: str, value: Any) -> None:
    with pytest.raises(InvalidInputError, match=field):
        SchedulerConfig(**{field: value})
