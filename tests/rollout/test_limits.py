"""What a request may ask for; over it is an error with the limit in it."""

import pytest
from planning_worlds import request

from mstar_plan.errors import ConfigError, LimitExceededError
from mstar_plan.models.toy import ToyWorld
from mstar_plan.rollout.limits import PlanDefaults, PlanLimits, effort

LIMITS = PlanLimits(max_horizon=70, max_iterations=8, max_samples=100, max_soft_time_s=2.0)
DEFAULTS = PlanDefaults(horizon=12, iterations=5, samples=96)
SPEC = ToyWorld().spec


def test_what_is_not_asked_for_is_the_default() -> None:
    assert effort(request(), DEFAULTS, LIMITS, SPEC) == DEFAULTS
    asked = request().but(horizon=3, iterations=8, samples=100, soft_time_s=2.0)
    assert effort(asked, DEFAULTS, LIMITS, SPEC) == PlanDefaults(3, 8, 100)


@pytest.mark.parametrize(
    ("field", "value", "limit"),
    [
        ("horizon", 71, "70"),
        ("horizon", 65, "64"),
        ("iterations", 9, "8"),
        ("samples", 101, "100"),
        ("soft_time_s", 2.5, "2"),
    ],
)
def test_over_a_limit_is_refused(field: str, value: float, limit: str) -> None:
    with pytest.raises(LimitExceededError, match=f"{field} is {value}") as error:
        effort(request().but(**{field: value}), DEFAULTS, LIMITS, SPEC)
    assert error.value.field == field
    assert error.value.details == {"limit": limit}


@pytest.mark.parametrize("field", ["max_horizon", "max_iterations", "max_samples", "max_soft_time_s"])
def test_a_limit_of_nothing_is_refused(field: str) -> None:
    with pytest.raises(ConfigError) as error:
        PlanLimits(**{field: 0})
    assert error.value.field == field
