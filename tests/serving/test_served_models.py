"""Models by name, ready or not."""

from __future__ import annotations

import pytest

from mstar_plan.errors import ConfigError, InvalidInputError, NotFoundError, UnavailableError
from mstar_plan.serving.served_models import MAX_NAME, ServedModels


def test_ready_only_after_it_was_said(solver):
    models = ServedModels({"toy": solver})
    with pytest.raises(UnavailableError, match="warming up"):
        models.ready("toy")
    models.mark("toy", None)
    assert models.ready("toy") == models.ready("") == ("toy", solver)
    models.mark("toy", "it broke")
    with pytest.raises(UnavailableError, match="it broke"):
        models.ready("toy")
    (info,) = models.infos()
    assert (info.ready, info.message) == (False, "it broke")


def test_which_one(solver):
    models = ServedModels({"toy": solver, "other": solver})
    with pytest.raises(InvalidInputError, match="other, toy; say which"):
        models.ready("")
    with pytest.raises(NotFoundError, match="did you mean 'toy'"):
        models.ready("toyy")


def test_a_long_name_is_not_repeated_whole(solver):
    with pytest.raises(NotFoundError) as caught:
        ServedModels({"toy": solver}).ready("x" * 10_000)
    assert len(str(caught.value)) < 3 * MAX_NAME


@pytest.mark.parametrize("names", [[], [""]])
def test_at_least_one_with_a_name(solver, names):
    with pytest.raises(ConfigError):
        ServedModels(dict.fromkeys(names, solver))
