"""Settings of a controller that contradict are refused."""

import pytest

from mstar_plan.errors import ConfigError
from mstar_plan.rollout.controller_config import ControllerConfig


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("execute", {"execute": 0}),
        ("action_repeat", {"action_repeat": 0}),
        ("soft_time_s", {"soft_time_s": 0.0}),
        ("samples", {"samples": -1}),
        ("execute", {"execute": 5, "horizon": 4}),
    ],
)
def test_refused(field: str, values: dict[str, object]) -> None:
    with pytest.raises(ConfigError) as error:
        ControllerConfig(**values)
    assert error.value.field == field
