"""`/v1/walks`: any public walk of any model, its inputs and outputs as JSON, its streams as server-sent events."""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Literal

from fastapi import APIRouter, Request
from pydantic import Field
from pydantic_core import to_json
from starlette.responses import Response

from mstar_plan.errors import InvalidInputError, NotFoundError, did_you_mean
from mstar_plan.families.abilities import WalkCall
from mstar_plan.families.face import REQUIRED, Port, WalkFace
from mstar_plan.families.servable import Servable
from mstar_plan.runtime.request import Done, WalkResult
from mstar_plan.serving.http.body import Answer, Body, Finite, SafeRoute, answer
from mstar_plan.serving.http.events import Events
from mstar_plan.serving.http.house import House
from mstar_plan.serving.http.streaming import StreamedResponse, server_sent
from mstar_plan.serving.http.walk_values import Encoding, told, value_of


class WalkBody(Body):
    """A walk to run."""

    inputs: dict[str, Any] = Field(
        default_factory=dict,
        description='{name: value}; a tensor is {"dtype", "shape", "data": numbers or base64 of little-endian bytes}',
        examples=[{"x": {"dtype": "float32", "shape": [1, 2], "data": [0.5, 1.0]}, "steps": 3}],
    )
    stream: list[str] = Field(default_factory=list, description="wires to be told of while the walk runs")
    encoding: Literal["list", "base64"] = Field("list", description="how tensors of the answer are written")
    deadline_s: Finite | None = Field(None, description="seconds that the request may take")


class WalkTiming(Answer):
    """Where the time went, in seconds, and how many requests shared a call at most."""

    queue_s: float
    run_s: float
    largest_batch: int


class WalkAnswer(Answer):
    """What a walk has given."""

    model: str
    walk: str
    outputs: dict[str, Any]
    timing: WalkTiming


class PortAnswer(Answer):
    """One value that a walk takes or gives; a tensor's sides are null where any size will do."""

    kind: str
    dtype: str | None = None
    shape: list[int | None] | None = None
    description: str
    unit: str
    required: bool | None = None
    default: Any = None


class FaceAnswer(Answer):
    """A walk that may be run."""

    model: str
    walk: str
    description: str
    inputs: dict[str, PortAnswer]
    outputs: dict[str, PortAnswer]
    streams: dict[str, PortAnswer]


class FacesAnswer(Answer):
    """All of them."""

    object: Literal["list"] = "list"
    data: list[FaceAnswer]


def walk_routes(house: House) -> APIRouter:
    """The routes, for an app."""
    router = APIRouter(route_class=SafeRoute, tags=["Walks"])

    @router.get("/v1/walks", response_model=FacesAnswer, summary="List the walks of all models")
    async def walks() -> Response:
        faces = [_face(each, name) for each in house.servables.values() for name in each.faces]
        return answer(FacesAnswer(object="list", data=faces))

    @router.get("/v1/walks/{model}/{walk}", response_model=FaceAnswer, summary="Describe a walk")
    async def describe(model: str, walk: str) -> Response:
        servable = house.find(model)
        _found(servable, walk)
        return answer(_face(servable, walk))

    @router.post("/v1/walks/{model}/{walk}", response_model=WalkAnswer, summary="Run a walk")
    async def run(model: str, walk: str, body: WalkBody, request: Request) -> Response:
        servable = house.find(model, request.scope)
        face = _found(servable, walk)
        for wire in body.stream:
            if wire not in face.streams:
                hint = did_you_mean(wire[:80], face.streams) if face.streams else "; it has none"
                raise InvalidInputError(f"walk {walk!r} has no stream {wire[:80]!r}{hint}", field="stream")
        prepare = functools.partial(prepared, face, body.inputs, tuple(dict.fromkeys(body.stream)))
        _, events = await house.start(servable, prepare, scope=request.scope, deadline_s=body.deadline_s)
        if body.stream:
            await events.first()
            messages = server_sent(house, _messages(house, events, servable, walk, body.encoding))
            return StreamedResponse(house, messages, (events,))
        async with events:
            result = await events.result()
        return Response(await house.off(_told, result, servable, walk, body.encoding), media_type="application/json")

    return router


def prepared(face: WalkFace, inputs: Mapping[str, Any], emit: tuple[str, ...]) -> WalkCall:
    """Returns the call of a walk on what a request sends.

    Raises:
        MStarError: The inputs do not fit the face; or as its `prepare`.
    """
    values = {name: value_of(name, given, face.inputs.get(name)) for name, given in inputs.items()}
    return WalkCall(face.walk, face.prepare(face.check(values)), emit)


def _found(servable: Servable, walk: str) -> WalkFace:
    if walk not in servable.faces:
        hint = did_you_mean(walk[:80], servable.faces)
        raise NotFoundError(f"model {servable.name!r} has no walk {walk[:80]!r}{hint}", field="walk")
    return servable.faces[walk]


def _told(result: WalkResult, servable: Servable, walk: str, encoding: Encoding) -> bytes:
    face = servable.faces[walk]
    outputs = {wire: told(face.present(wire, result.outputs[wire]), encoding) for wire in face.outputs}
    timing = result.timing
    given = WalkAnswer(
        model=servable.name,
        walk=walk,
        outputs=outputs,
        timing=WalkTiming(queue_s=timing.queue_s, run_s=timing.run_s, largest_batch=timing.largest_batch),
    )
    return given.dump()


async def _messages(
    house: House, events: Events, servable: Servable, walk: str, encoding: Encoding
) -> AsyncGenerator[bytes, None]:
    face = servable.faces[walk]
    async for event in events:
        if isinstance(event, Done):
            yield await house.off(_told, event.result, servable, walk, encoding)
        else:
            value = told(face.present(event.name, event.value), encoding)
            yield to_json({"wire": event.name, "index": event.index, "value": value})


def _face(servable: Servable, walk: str) -> FaceAnswer:
    face = servable.faces[walk]
    return FaceAnswer(
        model=servable.name,
        walk=walk,
        description=face.description,
        inputs={name: _port(port, taken=True) for name, port in face.inputs.items()},
        outputs={name: _port(port) for name, port in face.outputs.items()},
        streams={name: _port(port) for name, port in face.streams.items()},
    )


def _port(port: Port, taken: bool = False) -> PortAnswer:
    given = PortAnswer(kind=port.kind, description=port.description, unit=port.unit)
    if port.kind == "tensor":
        given.dtype, given.shape = port.dtype, list(port.shape)
    if taken:
        given.required = port.default is REQUIRED
        if port.default is not REQUIRED:
            given.default = told(port.default, "list")
    return given
