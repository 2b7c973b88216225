"""`POST /v1/completions`: what follows a text or its token ids, for one prompt or several at once."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Annotated, Any, ClassVar, Literal

from fastapi import APIRouter, Request
from pydantic import Field
from starlette.responses import Response

from mstar_plan.errors import InvalidInputError, LimitExceededError
from mstar_plan.families.abilities import TextCall, TextDelta, TextOptions, TextUsage, TokenLogprob
from mstar_plan.serving.http.body import Answer, SafeRoute, answer
from mstar_plan.serving.http.house import House
from mstar_plan.serving.http.side_by_side import merged
from mstar_plan.serving.http.streaming import StreamedResponse, server_sent
from mstar_plan.serving.http.text_body import TextBody, Usage, finite, top_of, usage_of
from mstar_plan.serving.http.written import WrittenAnswer, deltas_of

SIDE_BY_SIDE = 16  # prompts of one request that run at one time
Ids = Annotated[list[int], Field(min_length=1)]


class CompletionBody(TextBody):
    """Texts to go on from."""

    UNSUPPORTED: ClassVar[dict[str, tuple[Any, ...]]] = {"suffix": ("",)}

    prompt: str | Annotated[list[str], Field(min_length=1)] | Ids | Annotated[list[Ids], Field(min_length=1)]
    echo: bool | None = None
    logprobs: int | None = None
    best_of: int | None = None

    def prompts(self, most: int) -> list[str | list[int]]:
        """Each prompt by itself.

        Raises:
            LimitExceededError: There are too many.
        """
        given: Any = self.prompt
        if isinstance(given, str) or isinstance(given[0], int):
            given = [given]
        if len(given) > most:
            raise LimitExceededError(f"there are {len(given)} prompts; at most {most} are taken", field="prompt")
        prompts: list[str | list[int]] = given
        return prompts

    def check(self) -> None:
        """Refuses what is not offered.

        Raises:
            InvalidInputError: It asks for it.
        """
        if self.best_of is not None and self.best_of != (self.n or 1):
            what = f"best_of is {self.best_of} and n is {self.n or 1}"
            raise InvalidInputError(f"{what}; all answers are given, so leave best_of out", field="best_of")
        if self.echo and self.logprobs is not None:
            raise InvalidInputError("logprobs of the prompt are not given; ask for echo or logprobs", field="logprobs")


class CompletionLogprobs(Answer):
    """Tokens that were written, and where each begins in the answer's text."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]] | None
    text_offset: list[int]


class CompletionChoice(Answer):
    """One answer, or in a stream what was added to it."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: str | None


class Completion(Answer):
    """The answers; in a stream, an event."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | None = None


def completion_routes(house: House) -> APIRouter:
    """The route, for an app."""
    router = APIRouter(route_class=SafeRoute, tags=["OpenAI"])

    @router.post("/v1/completions", response_model=Completion, summary="Go on from a text")
    async def complete(body: CompletionBody, request: Request) -> Response:
        body.check()
        job = _Job(house, body, request)
        if not body.stream:
            return answer(await job.whole())
        chunks = job.chunks(body.wants_usage())
        first = await anext(chunks, b"")  # an error until here is the whole answer
        pieces = server_sent(house, _with(first, chunks))
        return StreamedResponse(house, pieces, ())

    return router


async def _with(first: bytes, rest: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(rest):
        yield first
        async for each in rest:
            yield each


class _Job:
    """One request: a walk for each prompt, side by side."""

    def __init__(self, house: House, body: CompletionBody, request: Request) -> None:
        self._house, self._body, self._scope = house, body, request.scope
        self._servable, self._ability = house.able(body.model, "text", request.scope)
        self._prompts = body.prompts(house.limits.prompts)
        self._options: TextOptions = body.options(house.limits, logprobs=body.logprobs, echo=bool(body.echo))
        self._n = body.n or 1
        self._offsets = [0] * (self._n * len(self._prompts))  # characters of each answer that have been sent
        self._room = asyncio.Semaphore(SIDE_BY_SIDE)
        self._id, self._created = f"cmpl-{secrets.token_hex(12)}", int(time.time())

    async def whole(self) -> Completion:
        """All answers, when they are there."""
        answers = [WrittenAnswer() for _ in self._offsets]
        used: list[TextUsage] = []
        async with aclosing(self._written()) as written:
            async for index, each in written:
                if isinstance(each, TextUsage):
                    used.append(each)
                else:
                    answers[index].add(each)
        choices = [
            self._choice(index, each.text, each.logprobs, each.finish or "stop") for index, each in enumerate(answers)
        ]
        return Completion(**self._head(), choices=choices, usage=usage_of(used))

    async def chunks(self, wants_usage: bool) -> AsyncGenerator[bytes, None]:
        """Events of a stream, as JSON."""
        used: list[TextUsage] = []
        nothing: dict[str, Any] = {"usage": None} if wants_usage else {}
        async with aclosing(self._written()) as written:
            async for index, each in written:
                if isinstance(each, TextUsage):
                    used.append(each)
                elif each.text or each.logprobs or each.finish:
                    choice = self._choice(index, each.text, each.logprobs, each.finish)
                    yield Completion(**self._head(), choices=[choice], **nothing).dump()
        if wants_usage:
            yield Completion(**self._head(), choices=[], usage=usage_of(used)).dump()

    def _written(self) -> AsyncGenerator[tuple[int, TextDelta | TextUsage], None]:
        return merged([self._one(at, prompt) for at, prompt in enumerate(self._prompts)])

    async def _one(self, at: int, prompt: str | list[int]) -> AsyncIterator[tuple[int, TextDelta | TextUsage]]:
        """What is written for one prompt, by the index of its answer."""

        def prepare() -> TextCall:
            call: TextCall = self._ability.complete(prompt, self._options)
            return call

        async with self._room:
            call, events = await self._house.start(
                self._servable, prepare, scope=self._scope, deadline_s=self._body.deadline_s
            )
            async with events:
                if self._options.echo:
                    for number in range(self._n):
                        yield at * self._n + number, TextDelta(number, call.prompt)
                async for each in deltas_of(self._house, events, self._scope):
                    yield (0 if isinstance(each, TextUsage) else at * self._n + each.index), each

    def _choice(self, index: int, text: str, tokens: Sequence[TokenLogprob], finish: str | None) -> CompletionChoice:
        logprobs = None
        if self._options.logprobs is not None:
            logprobs = _logprobs(tokens, self._options.logprobs, self._offsets[index])
        self._offsets[index] += sum(len(token.text) for token in tokens)
        return CompletionChoice(index=index, text=text, logprobs=logprobs, finish_reason=finish)

    def _head(self) -> dict[str, Any]:
        return {
            "id": self._id,
            "object": "text_completion",
            "created": self._created,
            "model": self._body.model,
        }


def _logprobs(tokens: Sequence[TokenLogprob], top: int, offset: int) -> CompletionLogprobs:
    offsets = []
    for token in tokens:
        offsets.append(offset)
        offset += len(token.text)
    return CompletionLogprobs(
        tokens=[token.text for token in tokens],
        token_logprobs=[finite(token.logprob) for token in tokens],
        top_logprobs=[{text: finite(value) for text, _, value in top_of(token, top)} for token in tokens]
        if top
        else None,
        text_offset=offsets,
    )
