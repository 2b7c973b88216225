"""Models by name, ready or not."""

from __future__ import annotations

import pytest
from planning_worlds import solver_for
from vjepa2_worlds import small_world

from mstar_plan.errors import ConfigError, InvalidInputError, NotFoundError, UnavailableError
from mstar_plan.models.vjepa2.contract import check_terms
from mstar_plan.rollout.cem import CEMConfig
from mstar_plan.serving.client import PlanClient
from mstar_plan.serving.served_models import MAX_NAME, ServedModels
from mstar_plan.serving.server import PlanningServer, ServerConfig


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


def test_the_contract_reaches_the_robot(client):
    """A robot compares what it does with what the model needs, before it moves."""
    assert client.list_models()[0].contract == {}
    with (
        solver_for(small_world(), CEMConfig(samples=8, iterations=1, horizon=2, elites=2, carry=1)) as solver,
        PlanningServer({"small": solver}, ServerConfig(port=0)) as server,
        PlanClient(server.address) as other,
    ):
        contract = other.list_models()[0].contract
    assert contract == solver.spec.contract
    check_terms(contract, {"frame_hz": 4, "image_size": (32, 32), "gripper_sign": "closes"})
    with pytest.raises(ConfigError, match="frame_hz is 5, the model needs 4; gripper_sign is opens"):
        check_terms(contract, {"frame_hz": 5, "gripper_sign": "opens"})
