"""`POST /v1/chat/completions`: answers to a conversation, whole or as a stream, with tools, images and formats."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from mstar_plan.errors import InvalidInputError
from mstar_plan.families.abilities import ChatMessage, TextAbility, TextDelta, TextUsage, TokenLogprob, ToolCall
from mstar_plan.serving.http.body import SafeRoute, answer
from mstar_plan.serving.http.chat_body import (
    AnsweredMessage,
    AnsweredToolCall,
    ChatBody,
    ChatChoice,
    ChatChunk,
    ChatCompletion,
    ChatLogprob,
    ChatLogprobs,
    ChunkChoice,
    FunctionCall,
    ImagePart,
    Message,
    TextPart,
    TopLogprob,
)
from mstar_plan.serving.http.config import HttpLimits
from mstar_plan.serving.http.house import House
from mstar_plan.serving.http.images import ImageReader
from mstar_plan.serving.http.streaming import StreamedResponse, server_sent
from mstar_plan.serving.http.text_body import finite, top_of, usage_of
from mstar_plan.serving.http.tool_use import Choice, Gate
from mstar_plan.serving.http.written import WrittenAnswer, deltas_of


def chat_routes(house: House) -> APIRouter:
    """The route, for an app."""
    router = APIRouter(route_class=SafeRoute, tags=["OpenAI"])

    @router.post("/v1/chat/completions", response_model=ChatCompletion, summary="Answer a conversation")
    async def chat(body: ChatBody, request: Request) -> Response:
        servable, ability = house.able(body.model, "text", request.scope)
        choice = body.choice(house.limits)
        options = body.text_options(house.limits, choice)
        wants_usage = body.wants_usage()

        def prepare() -> Any:
            messages = messages_of(body.messages, ability, house.limits)
            return ability.chat(messages, options, choice.tools)

        _, events = await house.start(servable, prepare, scope=request.scope, deadline_s=body.deadline_s)
        talk = _Talk(body, choice, ability, deltas_of(house, events, request.scope))
        if not body.stream:
            async with events:
                return answer(await talk.whole())
        await events.first()
        pieces = server_sent(house, talk.chunks(wants_usage))
        return StreamedResponse(house, pieces, (events,))

    return router


def messages_of(given: Sequence[Message], ability: TextAbility, limits: HttpLimits) -> list[ChatMessage]:
    """The conversation as a model takes it; images are decoded here.

    Raises:
        InvalidInputError: A message lacks what its role needs, or there is an image and the model does not see.
        LimitExceededError: Too many images, or pixels.
    """
    images = ImageReader(limits)
    messages = []
    for number, message in enumerate(given):
        field = f"messages[{number}]"
        if message.role == "tool" and not message.tool_call_id:
            raise InvalidInputError(f"{field} is a tool's and lacks tool_call_id", field=f"{field}.tool_call_id")
        if message.tool_calls and message.role != "assistant":
            what = f"{field} is of role {message.role!r} and holds tool_calls"
            raise InvalidInputError(f"{what}; only the assistant's may", field=f"{field}.tool_calls")
        if message.content is None and not message.tool_calls and message.role != "assistant":
            raise InvalidInputError(f"{field} has no content", field=f"{field}.content")
        parts = [] if message.content is None else message.content
        parts = [TextPart(type="text", text=parts)] if isinstance(parts, str) else parts
        pictures = []
        for at, part in enumerate(parts):
            if isinstance(part, ImagePart):
                where = f"{field}.content[{at}].image_url"
                if message.role != "user" or not ability.sees:
                    what = f"{where} is an image" + ("" if ability.sees else ", and this model does not see")
                    raise InvalidInputError(
                        f"{what}; only a user's message may hold one, to a model that sees", field=where
                    )
                pictures.append(images.read(part.image_url.url, where))
        messages.append(
            ChatMessage(
                "system" if message.role == "developer" else message.role,
                "\n".join(part.text for part in parts if isinstance(part, TextPart)),
                tuple(pictures),
                tuple(
                    ToolCall(call.function.name, call.function.arguments, call.id) for call in message.tool_calls or ()
                ),
                message.tool_call_id or "",
            )
        )
    return messages


class _Talk:
    """One request: what the model writes, in the words of OpenAI's clients."""

    def __init__(
        self, body: ChatBody, choice: Choice, ability: TextAbility, deltas: AsyncIterator[TextDelta | TextUsage]
    ) -> None:
        self._choice, self._ability, self._deltas = choice, ability, deltas
        self._top = body.top_logprobs or 0
        self._logprobs = bool(body.logprobs)
        self._count = body.n or 1
        self._id, self._created, self._model = f"chatcmpl-{secrets.token_hex(12)}", int(time.time()), body.model

    async def whole(self) -> ChatCompletion:
        """All answers, when they are there."""
        answers = [WrittenAnswer() for _ in range(self._count)]
        used: list[TextUsage] = []
        async for each in self._deltas:
            if isinstance(each, TextUsage):
                used.append(each)
            else:
                answers[each.index].add(each)
        choices = [self._choice_of(index, written) for index, written in enumerate(answers)]
        return ChatCompletion(
            id=self._id,
            object="chat.completion",
            created=self._created,
            model=self._model,
            choices=choices,
            usage=usage_of(used),
        )

    async def chunks(self, wants_usage: bool) -> AsyncGenerator[bytes, None]:
        """Events of a stream, as JSON."""
        gates = [self._choice.gate(self._ability) for _ in range(self._count)]
        answers = [WrittenAnswer() for _ in range(self._count)]
        for index in range(self._count):
            yield self._chunk(index, AnsweredMessage(role="assistant", content=""), wants_usage)
        async for each in self._deltas:
            if isinstance(each, TextUsage):
                for index, written in enumerate(answers):
                    if written.finish is None:  # a walk that ended without saying why
                        for chunk in self._ending(index, written, gates[index], wants_usage):
                            yield chunk
                if wants_usage:
                    yield ChatChunk(**self._head(), choices=[], usage=usage_of([each])).dump()
                continue
            written, gate = answers[each.index], gates[each.index]
            written.add(each)
            text = gate.add(each.text)
            if text or each.logprobs:
                yield self._chunk(each.index, AnsweredMessage(content=text), wants_usage, logprobs=each.logprobs)
            if each.finish is not None:
                for chunk in self._ending(each.index, written, gate, wants_usage):
                    yield chunk

    def _ending(self, index: int, written: WrittenAnswer, gate: Gate, wants_usage: bool) -> Iterator[bytes]:
        """What the gate has kept back, now that the answer is whole: text, calls, or both; and why it ended."""
        whole = written.text
        rest, calls = self._choice.split(self._ability, whole)
        cut = len(whole) - len(whole.lstrip()) if calls and rest == rest.lstrip() else 0  # of what was shown already
        text = (rest if calls else whole)[max(0, gate.shown - cut) :]
        if text:
            yield self._chunk(index, AnsweredMessage(content=text), wants_usage)
        if calls:
            called = [_called(call, at) for at, call in enumerate(calls)]
            yield self._chunk(index, AnsweredMessage(tool_calls=called), wants_usage)
        yield self._chunk(index, AnsweredMessage(), wants_usage, finish=_finish(written.finish, calls))

    def _choice_of(self, index: int, written: WrittenAnswer) -> ChatChoice:
        text, calls = self._choice.split(self._ability, written.text)
        message = AnsweredMessage(role="assistant", content=text if text or not calls else None, refusal=None)
        if calls:
            message.tool_calls = [_called(call) for call in calls]
        logprobs = self._logprobs_of(written.logprobs) if self._logprobs else None
        return ChatChoice(index=index, message=message, logprobs=logprobs, finish_reason=_finish(written.finish, calls))

    def _chunk(
        self,
        index: int,
        delta: AnsweredMessage,
        wants_usage: bool,
        *,
        logprobs: Sequence[TokenLogprob] = (),
        finish: str | None = None,
    ) -> bytes:
        told = self._logprobs_of(logprobs) if logprobs and self._logprobs else None
        choice = ChunkChoice(index=index, delta=delta, logprobs=told, finish_reason=finish)
        usage: dict[str, Any] = {"usage": None} if wants_usage else {}
        return ChatChunk(**self._head(), choices=[choice], **usage).dump()

    def _head(self) -> dict[str, Any]:
        return {
            "id": self._id,
            "object": "chat.completion.chunk",
            "created": self._created,
            "model": self._model,
        }

    def _logprobs_of(self, tokens: Sequence[TokenLogprob]) -> ChatLogprobs:
        content = [
            ChatLogprob(
                token=token.text,
                logprob=finite(token.logprob),
                bytes=list(token.text.encode("utf-8", "replace")),
                top_logprobs=[
                    TopLogprob(token=text, logprob=finite(logprob), bytes=list(text.encode("utf-8", "replace")))
                    for text, _, logprob in top_of(token, self._top)
                ],
            )
            for token in tokens
        ]
        return ChatLogprobs(content=content, refusal=None)


def _called(call: ToolCall, index: int | None = None) -> AnsweredToolCall:
    where = {} if index is None else {"index": index}
    function = FunctionCall(name=call.name, arguments=call.arguments)
    return AnsweredToolCall(**where, id=call.id, type="function", function=function)


def _finish(finish: str | None, calls: Sequence[ToolCall]) -> str:
    return "tool_calls" if calls and finish in (None, "stop") else finish or "stop"
