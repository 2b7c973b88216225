"""Limits check themselves."""

from __future__ import annotations

from dataclasses import fields

import pytest

from mstar_plan.errors import ConfigError
from mstar_plan.serving.limits import ServerLimits


@pytest.mark.parametrize("name", [field.name for field in fields(ServerLimits)])
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf")])
def test_every_limit_is_a_positive_number(name, value):
    with pytest.raises(ConfigError, match=name):
        ServerLimits(**{name: value})


def test_limits_fit_each_other():
    with pytest.raises(ConfigError, match="session_ttl_s"):
        ServerLimits(session_ttl_s=10, max_session_ttl_s=5)
    with pytest.raises(ConfigError, match="health checks"):
        ServerLimits(max_concurrent_plans=40, max_concurrent_calls=40)
