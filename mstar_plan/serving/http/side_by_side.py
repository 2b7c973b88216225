"""Several asynchronous iterations read as one, in the order in which their items come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import TypeVar

T = TypeVar("T")
AHEAD = 64  # items that are taken before anybody reads them


async def merged(sources: Sequence[AsyncIterator[T]]) -> AsyncGenerator[T, None]:
    """What the sources give; the first error of one ends all of them, and so does leaving early.

    Args:
        sources: Each is run in a task of its own.
    """
    if len(sources) == 1:
        try:
            async for item in sources[0]:
                yield item
        finally:
            await _close(sources[0])
        return
    items: asyncio.Queue[T | _End] = asyncio.Queue(AHEAD)
    tasks = [asyncio.create_task(_pour(source, items)) for source in sources]
    left = len(tasks)
    try:
        while left:
            taken = await items.get()
            if not isinstance(taken, _End):
                yield taken
            elif taken.error is not None:
                raise taken.error
            else:
                left -= 1
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _End:
    def __init__(self, error: Exception | None) -> None:
        self.error = error


async def _pour(source: AsyncIterator[T], items: asyncio.Queue[T | _End]) -> None:
    error = None
    try:
        async for item in source:
            await items.put(item)
    except Exception as raised:
        error = raised
    finally:
        await _close(source)
    await items.put(_End(error))


async def _close(source: AsyncIterator[T]) -> None:
    if isinstance(source, AsyncGenerator):
        await source.aclose()
