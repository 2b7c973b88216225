"""`GET /v1/models`: what is served, and what each of it is able to do."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from starlette.responses import Response

from mstar_plan.families.servable import Servable
from mstar_plan.serving.http.body import Answer, SafeRoute, answer
from mstar_plan.serving.http.house import House


class Model(Answer):
    """One model; `abilities` are the routes that take it, `walks` what `/v1/walks` runs of it."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str
    description: str
    licence: str
    source: str
    abilities: list[str]
    walks: list[str]
    voices: list[str] | None = None
    languages: list[str] | None = None
    context_tokens: int | None = None
    sees: bool | None = None


class Models(Answer):
    """All models."""

    object: Literal["list"] = "list"
    data: list[Model]


def model_routes(house: House) -> APIRouter:
    """The routes, for an app."""
    router = APIRouter(route_class=SafeRoute, tags=["OpenAI"])

    @router.get("/v1/models", response_model=Models, summary="List the models")
    async def models() -> Response:
        return answer(Models(object="list", data=[_told(each, house) for each in house.servables.values()]))

    @router.get("/v1/models/{model:path}", response_model=Model, summary="Describe a model")
    async def model(model: str) -> Response:
        return answer(_told(house.find(model), house))

    return router


def _told(servable: Servable, house: House) -> Model:
    told = Model(
        id=servable.name,
        object="model",
        created=house.began_s,
        owned_by="mstar",
        description=servable.description,
        licence=servable.licence,
        source=servable.source,
        abilities=list(servable.abilities),
        walks=list(servable.faces),
    )
    if servable.speech is not None:
        told.voices = list(servable.speech.voices)
    if servable.transcription is not None:
        told.languages = list(servable.transcription.languages)
    if servable.text is not None:
        told.context_tokens, told.sees = servable.text.context_tokens, servable.text.sees
    return told
