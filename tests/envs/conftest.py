"""Environments for the tests here, closed after each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest

import envs  # noqa: F401  chooses EGL, which must come before any test imports mujoco

TASKS = ("Reach", "Wall", "Push")


@pytest.fixture
def make() -> Iterator[Callable[..., Any]]:
    """Makes an environment by task name, e.g. make("Push")."""
    made: list[Any] = []

    def _make(task: str, **options: Any) -> Any:
        made.append(gymnasium.make(f"envs:mstar/{task}-v0", **options))
        return made[-1]

    yield _make
    for env in made:
        env.close()


@pytest.fixture(params=TASKS)
def env(request: pytest.FixtureRequest, make: Callable[..., Any]) -> Any:
    """Each of the tasks in turn."""
    return make(request.param)


@pytest.fixture
def blind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves the pictures black, for tests of dynamics over many episodes."""
    monkeypatch.setattr("envs.camera.TopCamera.picture", lambda self, _: np.zeros((self.size, self.size, 3), np.uint8))
