"""House: what is prepared for nobody is given back, and threads end with the server."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest
from http_world import Log, Place, doubler

from mstar_plan.errors import InvalidInputError, LimitExceededError, NotFoundError, UnavailableError
from mstar_plan.families.abilities import WalkCall
from mstar_plan.runtime.runtime import Runtime
from mstar_plan.serving.http.config import HttpConfig
from mstar_plan.serving.http.house import House


@pytest.fixture
def house() -> Iterator[House]:
    model = doubler()
    with Runtime({"doubler": model.graph}) as runtime:
        made = House({"doubler": model}, runtime, HttpConfig())
        yield made
        made.close()


def test_models_and_abilities_by_name(house: House) -> None:
    scope: dict[str, object] = {}
    assert house.find("doubler", scope).name == "doubler"
    assert scope == {"mstar_model": "doubler"}
    with pytest.raises(NotFoundError, match="did you mean 'doubler'"):
        house.find("dubler")
    with pytest.raises(InvalidInputError, match="does not speak, and neither does any other"):
        house.able("doubler", "speech")


def test_what_was_prepared_for_nobody_is_released(house: House) -> None:
    log, gate = Log(), threading.Event()

    def prepare() -> WalkCall:
        gate.wait(5)
        return WalkCall("double", {"place": Place(log)})

    async def run() -> None:
        waiting = asyncio.create_task(house.off(prepare))
        await asyncio.sleep(0.02)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert log.released == 0
        gate.set()
        end = time.monotonic() + 5
        while not log.released and time.monotonic() < end:
            await asyncio.sleep(0.005)

    asyncio.run(run())
    assert log.released == 1


@pytest.mark.parametrize("wrong", ["values", "walk", "closing"])
def test_a_call_that_cannot_start_is_released(house: House, wrong: str) -> None:
    log = Log()
    house.closing = wrong == "closing"

    async def run() -> None:
        call = WalkCall("double" if wrong != "walk" else "nothing", {"place": Place(log)})
        await house.start(house.servables["doubler"], lambda: call)

    with pytest.raises((InvalidInputError, NotFoundError, UnavailableError)):
        asyncio.run(run())
    assert (log.released, house.running) == (1, 0)


@pytest.mark.parametrize(
    ("deadline_s", "kind"),
    [(0.0, InvalidInputError), (-1.0, InvalidInputError), (float("nan"), InvalidInputError), (1e6, LimitExceededError)],
)
def test_deadlines_that_are_none(house: House, deadline_s: float, kind: type[Exception]) -> None:
    async def run() -> None:
        await house.start(house.servables["doubler"], lambda: WalkCall("double", {}), deadline_s=deadline_s)

    with pytest.raises(kind, match="deadline_s"):
        asyncio.run(run())


def test_a_closed_house_runs_nothing(house: House) -> None:
    house.close()
    with pytest.raises(UnavailableError):
        asyncio.run(house.off(lambda: 1))
