"""`POST /v1/embeddings`: texts to vectors."""

from __future__ import annotations

import base64
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Request
from pydantic import Field
from starlette.responses import Response

from mstar_plan.errors import InvalidInputError, LimitExceededError
from mstar_plan.serving.http.body import Answer, Finite, OpenAIBody, SafeRoute, answer
from mstar_plan.serving.http.config import HttpLimits
from mstar_plan.serving.http.house import House
from mstar_plan.serving.http.text_body import Usage


class EmbeddingBody(OpenAIBody):
    """Texts to embed."""

    model: str
    input: str | Annotated[list[str], Field(min_length=1)]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None
    deadline_s: Finite | None = None

    def texts(self, limits: HttpLimits, width: int) -> list[str]:
        """Each text by itself.

        Raises:
            InvalidInputError: One is empty, or another width is wanted than the model has.
            LimitExceededError: There are too many, or one is too long.
        """
        texts = [self.input] if isinstance(self.input, str) else self.input
        if len(texts) > limits.prompts:
            raise LimitExceededError(f"there are {len(texts)} texts; at most {limits.prompts} are taken", field="input")
        for number, text in enumerate(texts):
            if not text.strip():
                raise InvalidInputError(f"text {number} is empty", field=f"input[{number}]")
            if len(text) > limits.text_characters:
                what = f"text {number} has {len(text)} characters"
                raise LimitExceededError(
                    f"{what}; at most {limits.text_characters} are taken", field=f"input[{number}]"
                )
        if self.dimensions not in (None, width):
            what = f"dimensions is {self.dimensions}"
            raise InvalidInputError(
                f"{what}; this model's vectors have {width}, no more and no less", field="dimensions"
            )
        return texts


class Embedding(Answer):
    """Vector of one text: numbers, or base64 of little-endian float32."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class Embeddings(Answer):
    """Vectors in the order of the texts."""

    object: Literal["list"] = "list"
    data: list[Embedding]
    model: str
    usage: Usage


def embedding_routes(house: House) -> APIRouter:
    """The route, for an app."""
    router = APIRouter(route_class=SafeRoute, tags=["OpenAI"])

    @router.post("/v1/embeddings", response_model=Embeddings, summary="Map texts to vectors")
    async def embed(body: EmbeddingBody, request: Request) -> Response:
        servable, ability = house.able(body.model, "embedding", request.scope)
        texts = body.texts(house.limits, ability.width)
        _, events = await house.start(
            servable, lambda: ability.embed(texts), scope=request.scope, deadline_s=body.deadline_s
        )
        async with events:
            outputs = (await events.result()).outputs
        used = int(outputs["tokens"].sum())
        house.metrics.prompt_tokens.labels(body.model).inc(used)
        vectors = outputs["embeddings"].detach().float().cpu().numpy()
        return answer(await house.off(_answered, vectors, body, used))

    return router


def _answered(vectors: Any, body: EmbeddingBody, used: int) -> Embeddings:
    data = []
    for index, vector in enumerate(vectors):
        told = (
            vector.tolist()
            if body.encoding_format == "float"
            else base64.b64encode(np.ascontiguousarray(vector, "<f4").tobytes()).decode()
        )
        data.append(Embedding(object="embedding", index=index, embedding=told))
    usage = Usage(prompt_tokens=used, total_tokens=used)
    return Embeddings(object="list", data=data, model=body.model, usage=usage)
