"""Policies over a websocket, as openpi's clients speak it: metadata first, then actions for every observation."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from fastapi import APIRouter, WebSocket
from starlette.responses import Response

from mstar_plan import __version__
from mstar_plan.errors import InvalidInputError, MStarError, OverloadedError, UnavailableError
from mstar_plan.families.abilities import ActionAbility, WalkCall
from mstar_plan.families.servable import Servable
from mstar_plan.runtime.request import WalkResult
from mstar_plan.serving.http.errors import as_ours, code_of, encoded, headers_of
from mstar_plan.serving.http.house import House
from mstar_plan.serving.http.msgpack_arrays import pack
from mstar_plan.serving.http.observations import KNOWN, query_of

_log = logging.getLogger(__name__)

PATHS = ("/", "/v1/realtime/robot/openpi")
INLINE_BYTES = 2**20  # a message up to this size is read in the loop; a larger one in a thread
TIMING = "server_timing"
_numbers = itertools.count(1)


def robot_routes(house: House) -> APIRouter:
    """The routes, for an app."""
    router = APIRouter()

    async def robot(websocket: WebSocket) -> None:
        try:
            servable, policy = _policy(house, websocket.query_params.get("model", ""))
            if house.closing:
                raise UnavailableError("the server is shutting down; ask another one")
            if house.robots >= house.limits.robots:
                most = house.limits.robots
                raise OverloadedError(f"{most} robots are connected, which is all that is taken", retry_after_s=1.0)
        except MStarError as error:
            house.metrics.failed(error)
            denial = Response(encoded(error), code_of(error), headers_of(error), "application/json")
            await websocket.send_denial_response(denial)
            return
        house.robots += 1
        house.metrics.robots.inc()
        try:
            await _Robot(house, servable, policy, websocket).serve()
        finally:
            house.robots -= 1
            house.metrics.robots.dec()

    for path in PATHS:
        router.add_api_websocket_route(path, robot)
    return router


def metadata_of(servable: Servable, policy: ActionAbility) -> dict[str, Any]:
    """What a robot is told when it connects: what the policy wants to see, and what its actions are."""
    action = policy.action
    return {
        "server": "mstar-plan",
        "server_version": __version__,
        "model": servable.name,
        "description": servable.description,
        "action_names": list(action.names),
        "action_units": list(action.units),
        "action_low": action.low,
        "action_high": action.high,
        "dt_s": action.dt_s,
        "chunk": policy.chunk,
        "fields": [
            {
                "key": field.key,
                "kind": field.kind,
                "shape": list(field.shape),
                "names": list(field.names),
                "required": field.required,
                "description": field.description,
            }
            for field in policy.fields
        ],
        "options": list(KNOWN),
    }


class _Robot:
    """One connection. A message is answered before the next is begun; hanging up ends what is under way."""

    def __init__(self, house: House, servable: Servable, policy: ActionAbility, websocket: WebSocket) -> None:
        self._house, self._servable, self._policy, self._websocket = house, servable, policy, websocket
        self._session = f"robot-{next(_numbers)}"
        self._previous_ms: float | None = None

    async def serve(self) -> None:
        await self._websocket.accept()
        await self._websocket.send_bytes(pack(metadata_of(self._servable, self._policy)))
        receiving = asyncio.create_task(self._websocket.receive())
        answering: asyncio.Task[bytes | str] | None = None
        try:
            while (message := await receiving)["type"] != "websocket.disconnect":
                began = time.monotonic()
                receiving = asyncio.create_task(self._websocket.receive())
                answering = asyncio.create_task(self._answer(message))
                await asyncio.wait((receiving, answering), return_when=asyncio.FIRST_COMPLETED)
                if not answering.done() and receiving.result()["type"] == "websocket.disconnect":
                    _log.debug("%s has hung up", self._session)
                    return
                reply = await answering
                if isinstance(reply, bytes):
                    await self._websocket.send_bytes(reply)
                else:
                    await self._websocket.send_text(reply)
                self._previous_ms = 1e3 * (time.monotonic() - began)
        finally:
            tasks = [task for task in (receiving, answering) if task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _answer(self, message: Mapping[str, Any]) -> bytes | str:
        """Actions, or in words what is wrong: openpi's clients raise what they get as text."""
        try:
            return await self._acted(message.get("bytes"))
        except Exception as raised:
            error = as_ours(raised)
            self._house.metrics.failed(error)
            return str(error)

    async def _acted(self, data: bytes | None) -> bytes:
        house, policy, began = self._house, self._policy, time.monotonic()
        if data is None:
            raise InvalidInputError("the message is text; send MessagePack in a binary frame")
        limit = house.limits.body_bytes
        if len(data) <= INLINE_BYTES:
            query = query_of(data, policy, limit)
        else:
            query = await house.off(query_of, data, policy, limit, robot=True)
        if query.reset:  # a policy keeps nothing of a robot between two answers
            return pack({"reset": True})

        def prepare() -> WalkCall:
            return policy.act(query.observation, seed=query.seed, previous=query.previous, delay=query.delay)

        _, events = await house.start(
            self._servable,
            prepare,
            deadline_s=query.deadline_s,
            urgent_s=policy.chunk * policy.action.dt_s,  # by then the robot has nothing left to do
            session=self._session,
            robot=True,
        )
        async with events:
            result = await events.result()
        house.metrics.actions.labels(self._servable.name).observe(time.monotonic() - began)
        return self._packed(result, 1e3 * (time.monotonic() - began))

    def _packed(self, result: WalkResult, total_ms: float) -> bytes:
        actions = result.outputs["actions"].detach().float().cpu().numpy()[0]
        timing = {
            "infer_ms": 1e3 * result.timing.run_s,
            "queue_ms": 1e3 * result.timing.queue_s,
            "total_ms": total_ms,
            "largest_batch": result.timing.largest_batch,
        }
        if self._previous_ms is not None:
            timing["prev_total_ms"] = self._previous_ms
        return pack({"actions": np.asarray(actions, np.float32), TIMING: timing})


def _policy(house: House, model: str) -> tuple[Servable, ActionAbility]:
    """The policy of this name, or the first one where there is no name."""
    if model:
        servable, policy = house.able(model, "action")
        return servable, policy
    for servable in house.servables.values():
        if servable.action is not None:
            return servable, servable.action
    raise UnavailableError("no policy is served here", field="model")
