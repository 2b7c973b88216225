"""HttpConfig: refuses to listen where others can come in unasked, and limits that are none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mstar_plan.errors import ConfigError
from mstar_plan.serving.http.config import HttpConfig, HttpLimits


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "robot.example"])
def test_other_machines_need_a_token_or_consent(host: str) -> None:
    with pytest.raises(ConfigError, match="other machines may reach"):
        HttpConfig(host=host)
    assert HttpConfig(host=host, insecure=True).host == host
    assert HttpConfig(host=host, tokens=Path("tokens")).host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_this_machine_needs_none(host: str) -> None:
    assert HttpConfig(host=host).tokens is None


@pytest.mark.parametrize(("name", "value"), [("port", -1), ("port", 65536), ("grace_s", 0), ("grace_s", float("nan"))])
def test_values_that_are_out_of_range(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=name):
        HttpConfig(**{name: value})


def test_a_unix_socket_is_not_offered() -> None:
    with pytest.raises(ConfigError, match="unix"):
        HttpConfig(host="unix:/tmp/x")


@pytest.mark.parametrize("value", [0, -1, float("inf"), float("nan")])
def test_limits_are_positive(value: Any) -> None:
    with pytest.raises(ConfigError, match="audio_s"):
        HttpLimits(audio_s=value)
