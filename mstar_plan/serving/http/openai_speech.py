"""`POST /v1/audio/speech`: text to audio, sent as it is made."""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator
from typing import Any, ClassVar, Literal

import numpy as np
from fastapi import APIRouter, Request
from pydantic import Field
from pydantic_core import to_json
from starlette.responses import Response
from starlette.types import Scope

from mstar_plan.errors import InvalidInputError, LimitExceededError, did_you_mean
from mstar_plan.families.abilities import SpeechAbility
from mstar_plan.runtime.request import Done
from mstar_plan.serving.http.audio_encoding import AudioEncoder, make_encoder, media_type_of
from mstar_plan.serving.http.body import Body, Finite, OpenAIBody, SafeRoute
from mstar_plan.serving.http.config import HttpLimits
from mstar_plan.serving.http.events import Events
from mstar_plan.serving.http.house import House
from mstar_plan.serving.http.streaming import StreamedResponse, server_sent

MIN_SPEED, MAX_SPEED = 0.25, 4.0


class VoiceId(Body):
    """A voice by its id."""

    id: str


class SpeechBody(OpenAIBody):
    """A text to speak."""

    UNSUPPORTED: ClassVar[dict[str, tuple[Any, ...]]] = {"instructions": ("",)}

    model: str
    input: str = Field(min_length=1)
    voice: str | VoiceId | None = Field(None, description="the model's first one if left out")
    response_format: Literal["mp3", "opus", "aac", "flac", "wav", "pcm"] = "mp3"
    speed: Finite = 1.0
    stream_format: Literal["audio", "sse"] = "audio"
    deadline_s: Finite | None = None

    def check(self, ability: SpeechAbility, limits: HttpLimits) -> str:
        """Returns the voice.

        Raises:
            InvalidInputError: The voice is not known, the speed out of range, or the text empty.
            LimitExceededError: The text is too long.
        """
        if len(self.input) > limits.text_characters:
            what = f"input has {len(self.input)} characters"
            raise LimitExceededError(f"{what}; at most {limits.text_characters} are taken", field="input")
        if not self.input.strip():
            raise InvalidInputError("input is empty; send a text to speak", field="input")
        if not MIN_SPEED <= self.speed <= MAX_SPEED:
            what = f"speed is {self.speed}"
            raise InvalidInputError(f"{what}; it needs {MIN_SPEED} to {MAX_SPEED}", field="speed")
        voice = self.voice.id if isinstance(self.voice, VoiceId) else self.voice or ""
        if voice and voice not in ability.voices:
            hint = did_you_mean(voice[:80], ability.voices)
            raise InvalidInputError(f"there is no voice {voice[:80]!r}{hint}", field="voice")
        return voice


def speech_routes(house: House) -> APIRouter:
    """The route, for an app."""
    router = APIRouter(route_class=SafeRoute, tags=["OpenAI"])
    content: dict[int | str, dict[str, Any]] = {200: {"content": {"audio/*": {}}, "description": "The audio"}}

    @router.post("/v1/audio/speech", response_class=Response, responses=content, summary="Speak a text")
    async def speak(body: SpeechBody, request: Request) -> Response:
        servable, ability = house.able(body.model, "speech", request.scope)
        voice = body.check(ability, house.limits)
        encoder = make_encoder(body.response_format, ability.sample_rate)
        _, events = await house.start(
            servable,
            lambda: ability.speak(body.input, voice, body.speed),
            scope=request.scope,
            deadline_s=body.deadline_s,
        )
        await events.first()
        pieces = encoded_audio(house, events, encoder, request.scope)
        if body.stream_format == "sse":
            messages = server_sent(house, _messages(pieces), done=False)
            return StreamedResponse(house, messages, (events,))
        return StreamedResponse(house, pieces, (events,), media_type_of(body.response_format))

    return router


async def encoded_audio(
    house: House, events: Events, encoder: AudioEncoder, scope: Scope
) -> AsyncGenerator[bytes, None]:
    """The audio that a walk emits, as pieces of a file."""
    began = False
    async for event in events:
        if isinstance(event, Done):
            break
        if event.name != "audio" or not event.value.numel():
            continue
        samples = np.asarray(event.value.detach().float().cpu().reshape(-1).numpy(), np.float32)
        piece = await house.off(encoder.add, samples)
        if not began:
            began = True
            house.metrics.first_output(scope, "audio")
        if piece:
            yield piece
    rest = await house.off(encoder.end)
    if rest:
        yield rest


async def _messages(pieces: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    async for piece in pieces:
        yield to_json({"type": "speech.audio.delta", "audio": base64.b64encode(piece).decode()})
    yield to_json({"type": "speech.audio.done"})
