"""Bodies of requests: strict types whose unknown fields are refused by name, and a route that reads them safely."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, ClassVar

from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import from_json
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from mstar_plan.errors import InvalidInputError, MStarError
from mstar_plan.serving.http.errors import of_validation

INLINE_BYTES = 128 * 1024  # a body up to this size is read in the loop; a larger one in a thread
DEPTH = "the body is nested too deeply, or is not JSON"

# Fields of OpenAI's routes that change nothing in an answer of this server.
HARMLESS = frozenset({
    "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
})  # fmt: skip

Finite = Annotated[float, Field(allow_inf_nan=False)]


class Body(BaseModel):
    """A body, or a part of one: no type is guessed, and a field that is not known is an error."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, protected_namespaces=())


class OpenAIBody(Body):
    """A body of one of OpenAI's routes: fields that change nothing are taken and dropped.

    Attributes:
        UNSUPPORTED: {field: values of it that mean what the server does anyway} of fields that it does not offer.
    """

    UNSUPPORTED: ClassVar[dict[str, tuple[Any, ...]]] = {}

    @model_validator(mode="before")
    @classmethod
    def drop_harmless(cls, data: Any) -> Any:
        """Drops fields that change nothing, and those that ask for what is done anyway."""
        if not isinstance(data, dict):
            return data
        kept = {}
        for name, value in data.items():
            idle = cls.UNSUPPORTED.get(name)
            if name in HARMLESS or (idle is not None and (value is None or value in idle)):
                continue
            kept[name] = value
        return kept


class Answer(BaseModel):
    """An answer, or a part of one. What is not set is not sent."""

    model_config = ConfigDict(protected_namespaces=())

    def dump(self) -> bytes:
        """As JSON."""
        return self.model_dump_json(exclude_unset=True).encode()


def answer(given: Answer) -> Response:
    """Returns an answer as a response."""
    return Response(given.dump(), media_type="application/json")


class _JsonRequest(Request):
    async def json(self) -> Any:
        body = await self.body()
        parse = (lambda: from_json(body, allow_inf_nan=False)) if body else dict
        try:
            return parse() if len(body) <= INLINE_BYTES else await asyncio.to_thread(parse)
        except ValueError as error:
            raise InvalidInputError(f"the body is not JSON: {error}", field="body") from None
        except RecursionError:
            raise InvalidInputError(DEPTH, field="body") from None


class SafeRoute(APIRoute):
    """A route whose JSON is read strictly (no NaN, no deep nesting), large bodies in a thread, errors as ours."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """See FastAPI."""
        original = super().get_route_handler()
        wants_json = self.body_field is not None and "multipart" not in str(getattr(self.body_field, "field_info", ""))

        async def handle(request: Request) -> Response:
            mine = _JsonRequest(request.scope, request.receive)
            try:
                return await original(mine)
            except HTTPException as error:
                if isinstance(error.__cause__, MStarError):
                    raise error.__cause__ from None
                raise
            except RequestValidationError as error:
                kind = request.headers.get("content-type", "")
                if wants_json and "json" not in kind and any(p["loc"] == ("body",) for p in error.errors()):
                    what = f"the body is sent as {kind[:100] or 'nothing'!r}"
                    raise InvalidInputError(f"{what}; send JSON, and content-type: application/json") from None
                raise of_validation(error.errors()) from None

        return handle
