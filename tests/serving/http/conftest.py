"""One server with scripted models that the tests of HTTP share, and what they ask it with."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from http_world import World, http_world


@pytest.fixture(scope="session")
def shared_world() -> Iterator[World]:
    """A server that many tests share; none may leave it broken."""
    with http_world() as world:
        yield world


@pytest.fixture
def world(shared_world: World) -> Iterator[World]:
    """The shared server, with a clean log."""
    shared_world.log.asked.clear()
    yield shared_world
    shared_world.settle()


@pytest.fixture
def http(world: World) -> Iterator[httpx.Client]:
    """A bare HTTP client of the shared server."""
    with httpx.Client(base_url=world.url, timeout=20) as client:
        yield client
