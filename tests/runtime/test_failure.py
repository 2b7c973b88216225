"""Failure: what a component raises becomes an error that holds on to nothing."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

from mstar_plan.errors import ComponentError, InvalidInputError
from mstar_plan.runtime.failure import as_error


def raised_by(error: Exception) -> tuple[Exception, weakref.ref[torch.Tensor]]:
    def component() -> None:
        big = torch.zeros(3)
        alive.append(weakref.ref(big))
        try:
            raise KeyError("inner")
        except KeyError:
            raise error  # noqa: B904

    alive: list[weakref.ref[torch.Tensor]] = []
    try:
        component()
    except type(error) as caught:
        return caught, alive[0]
    raise AssertionError


def test_a_strange_error_is_wrapped_and_frees_its_frames(caplog: pytest.LogCaptureFixture) -> None:
    error, alive = raised_by(ValueError("bad\nnews"))
    wrapped = as_error("component 'predict'", error)
    assert type(wrapped) is ComponentError
    assert str(wrapped).startswith("component 'predict' failed: ValueError: bad")
    assert wrapped.__cause__ is error
    assert "Traceback" in caplog.text
    caplog.clear()
    gc.collect()
    assert alive() is None


def test_our_own_error_passes_and_frees_its_frames(caplog: pytest.LogCaptureFixture) -> None:
    error, alive = raised_by(InvalidInputError("no"))
    assert as_error("component 'predict'", error) is error
    caplog.clear()
    gc.collect()
    assert alive() is None
