"""The app: all routes, what becomes of errors, and the middleware around them."""

from __future__ import annotations

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp

from mstar_plan import __version__
from mstar_plan.errors import InvalidInputError, MStarError, NotFoundError
from mstar_plan.serving.http.access import Guarded, Tokens
from mstar_plan.serving.http.bounds import Bounded
from mstar_plan.serving.http.errors import MethodNotAllowedError, as_ours, code_of, encoded, headers_of
from mstar_plan.serving.http.house import House
from mstar_plan.serving.http.metrics import Counted
from mstar_plan.serving.http.openai_chat import chat_routes
from mstar_plan.serving.http.openai_completions import completion_routes
from mstar_plan.serving.http.openai_embeddings import embedding_routes
from mstar_plan.serving.http.openai_models import model_routes
from mstar_plan.serving.http.openai_speech import speech_routes
from mstar_plan.serving.http.openai_transcriptions import transcription_routes
from mstar_plan.serving.http.openpi import robot_routes
from mstar_plan.serving.http.pages import add_docs, page_routes
from mstar_plan.serving.http.walks import walk_routes
from mstar_plan.serving.server import is_local

ABOUT = (
    "The routes of OpenAI's API for what the served models are able to do, any public walk of any model under "
    "/v1/walks, and policies for openpi's clients on the websocket at /."
)


def make_app(house: House) -> FastAPI:
    """Returns the app, without what is around it."""
    app = FastAPI(title="mstar-plan", version=__version__, description=ABOUT, docs_url=None, redoc_url=None)
    for routes in (
        chat_routes,
        completion_routes,
        embedding_routes,
        model_routes,
        speech_routes,
        transcription_routes,
        walk_routes,
        page_routes,
        robot_routes,
    ):
        app.include_router(routes(house))
    add_docs(app)

    async def ours(request: Request, raised: Exception) -> Response:
        error = _of_starlette(request, raised) if isinstance(raised, HTTPException) else as_ours(raised)
        house.metrics.failed(error)
        return Response(encoded(error), code_of(error), headers_of(error), "application/json")

    for kind in (MStarError, HTTPException, ExceptionGroup, Exception):
        app.add_exception_handler(kind, ours)
    return app


def wrapped(app: ASGIApp, house: House, tokens: Tokens) -> tuple[ASGIApp, Bounded]:
    """Returns the app with everything around it: counting outermost, then who may, then how much."""
    bounded = Bounded(app, house.limits, house.metrics)
    config = house.config
    guarded = Guarded(bounded, tokens, config.origins, is_local(config.host))
    return Counted(guarded, house.metrics), bounded


def _of_starlette(request: Request, raised: HTTPException) -> MStarError:
    path = request.url.path[:200]
    if raised.status_code == 404:
        return NotFoundError(f"there is no {path}; see /docs")
    if raised.status_code == 405:
        return MethodNotAllowedError(f"{path} is not there for {request.method}; see /docs")
    return InvalidInputError(str(raised.detail))
