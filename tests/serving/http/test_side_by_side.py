"""Iterations read as one: nothing lost, the first error ends all, leaving early closes all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from mstar_plan.serving.http.side_by_side import merged

closed: list[int] = []


async def counting(
    name: int, to: int, pause_s: float = 0.0, fails: bool = False
) -> AsyncGenerator[tuple[int, int], None]:
    try:
        for number in range(to):
            await asyncio.sleep(pause_s)
            yield name, number
        if fails:
            raise ValueError("broken")
    finally:
        closed.append(name)


@pytest.mark.parametrize("count", [1, 3])
def test_everything_comes_each_in_its_order(count: int) -> None:
    async def run() -> list[tuple[int, int]]:
        return [item async for item in merged([counting(name, 100 * name + 5) for name in range(count)])]

    got = asyncio.run(run())
    for name in range(count):
        assert [number for who, number in got if who == name] == list(range(100 * name + 5))


@pytest.mark.parametrize("count", [1, 3])
def test_the_first_error_ends_all(count: int) -> None:
    closed.clear()

    async def run() -> None:
        async for _ in merged(
            [counting(0, 2, 0.001, fails=True), *(counting(n, 10**6, 0.01) for n in range(1, count))]
        ):
            pass

    with pytest.raises(ValueError, match="broken"):
        asyncio.run(run())
    assert sorted(closed) == list(range(count))


@pytest.mark.parametrize("count", [1, 3])
def test_leaving_early_closes_all(count: int) -> None:
    closed.clear()

    async def run() -> None:
        together = merged([counting(name, 10**6) for name in range(count)])
        async for _ in together:
            break
        await asyncio.sleep(0.01)  # the others have begun
        await together.aclose()
        assert sorted(closed) == list(range(count))

    asyncio.run(run())
