"""Places are bounded and given back; the nearer of two deadlines counts; nothing stays held that did not start."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from inference_world import ROW_TENSOR, toy

from mstar_plan.errors import DeadlineError, OverloadedError, UnavailableError
from mstar_plan.runtime.runtime import Runtime
from mstar_plan.serving.dispatch import NEVER_S, Call
from mstar_plan.serving.inference_codec import Asked
from mstar_plan.serving.limits import ServerLimits
from mstar_plan.serving.served_walks import ServedWalks
from mstar_plan.serving.walk_start import WalkStart, time_left


def call_with(remaining_s: float | None) -> Call:
    return Call(SimpleNamespace(time_remaining=lambda: remaining_s), 0.0)


@pytest.fixture
def model():
    return toy()


@pytest.fixture
def runtime(model):
    with Runtime(model.graph) as made:
        yield made


def asked(model, runtime, walk: str, timeout_s: float | None = None, streams: tuple[str, ...] = ()) -> Asked:
    target = ServedWalks({"toy": model.servable}, runtime).find(f"toy/{walk}")
    values = target.face.check({"x": ROW_TENSOR})
    return Asked("", target, values, timeout_s, None, False, tuple(target.face.outputs), streams)


@pytest.mark.parametrize(
    ("own_s", "call_s", "left_s"), [(None, None, None), (2.0, None, 2.0), (None, 3.0, 3.0), (2.0, 1.0, 1.0)]
)
def test_the_nearer_deadline_counts(model, runtime, own_s, call_s, left_s):
    assert time_left(asked(model, runtime, "add", own_s), call_with(call_s)) == left_s


def test_a_call_without_a_deadline_has_none():
    assert call_with(2**63 / 1e9).remaining_s() is None
    assert call_with(NEVER_S - 1).remaining_s() == NEVER_S - 1


def test_places():
    start = WalkStart(None, ServerLimits(max_concurrent_walks=2))
    with start.place():
        start.take()
        with pytest.raises(OverloadedError, match="2 walks are running, which is max_concurrent_walks"):
            start.take()
        start.give_back()
    with pytest.raises(RuntimeError, match="x"), start.place():
        raise RuntimeError("x")
    for _ in range(2):
        start.take()


def test_a_walk_and_a_stream(model, runtime):
    start = WalkStart(runtime, ServerLimits())
    request, left_s = start.submit(asked(model, runtime, "add"), call_with(5.0))
    assert (request.result(5).outputs["sum"].tolist(), left_s) == (ROW_TENSOR.tolist(), 5.0)
    events = list(start.stream(asked(model, runtime, "count", streams=("said",)), call_with(None)))
    assert [event.name for event in events[:-1]] == ["said"] * 3


@pytest.mark.parametrize("way", ["submit", "stream"])
def test_what_is_held_is_given_back(model, runtime, way):
    start = getattr(WalkStart(runtime, ServerLimits()), way)
    with pytest.raises(DeadlineError):
        start(asked(model, runtime, "hold"), call_with(0.0))
    assert not model.book
    runtime.close()
    with pytest.raises(UnavailableError):
        start(asked(model, runtime, "hold"), call_with(None))
    assert not model.book
