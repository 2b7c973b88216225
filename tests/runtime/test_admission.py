"""Admission: bounds in all and for each session."""

from __future__ import annotations

import threading
import time

import pytest

from mstar_plan.errors import InvalidInputError, OverloadedError
from mstar_plan.runtime.admission import Admission, AdmissionConfig


def test_the_house_is_bounded() -> None:
    admission = Admission(AdmissionConfig(max_requests=2, max_per_session=9))
    admission.enter("a")
    admission.enter("b")
    with pytest.raises(OverloadedError, match="2 requests are in the queue") as caught:
        admission.enter("c")
    assert caught.value.details == {"retry_after_s": f"{caught.value.retry_after_s:.3f}"}
    admission.leave("a")
    admission.enter("c")
    assert len(admission) == 2


def test_a_session_is_bounded_and_the_nameless_are_not() -> None:
    admission = Admission(AdmissionConfig(max_requests=9, max_per_session=1))
    admission.enter("a")
    with pytest.raises(OverloadedError, match="session 'a' has 1 requests"):
        admission.enter("a")
    for _ in range(3):
        admission.enter("")
    admission.leave("a")
    admission.enter("a")


def test_it_says_when_a_place_is_likely_to_be_free() -> None:
    admission = Admission(AdmissionConfig(max_requests=1))
    for _ in range(40):
        admission.enter("")
        time.sleep(0.002)
        admission.leave("")
    admission.enter("")
    with pytest.raises(OverloadedError) as fast:
        admission.enter("")
    assert fast.value.retry_after_s < 0.04


def test_counts_hold_under_many_threads() -> None:
    admission = Admission(AdmissionConfig(max_requests=1000, max_per_session=1000))

    def come_and_go() -> None:
        for _ in range(300):
            admission.enter("s")
            admission.leave("s")

    threads = [threading.Thread(target=come_and_go) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(admission) == 0
    assert admission._sessions == {}


@pytest.mark.parametrize("field", ["max_requests", "max_per_session"])
def test_the_config_checks_itself(field: str) -> None:
    with pytest.raises(InvalidInputError, match=field):
        AdmissionConfig(**{field: 0})
