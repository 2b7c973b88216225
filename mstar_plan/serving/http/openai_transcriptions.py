"""`POST /v1/audio/transcriptions`: an audio file to text, to segments, or to subtitles."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, File, Form, Request, UploadFile
from pydantic_core import to_json
from starlette.responses import Response

from mstar_plan.errors import InvalidInputError, did_you_mean
from mstar_plan.families.abilities import Segment, TranscriptionAbility, WalkCall
from mstar_plan.runtime.request import Done, WalkResult
from mstar_plan.serving.http.audio_files import read_audio
from mstar_plan.serving.http.body import Answer, SafeRoute, answer
from mstar_plan.serving.http.events import Events
from mstar_plan.serving.http.house import House
from mstar_plan.serving.http.streaming import StreamedResponse, server_sent

# Fields, and the values that mean what is done anyway; None: any.
FIELDS: dict[str, tuple[str, ...] | None] = {
    "file": None,
    "model": None,
    "language": None,
    "prompt": None,
    "response_format": None,
    "stream": None,
    "deadline_s": None,
    "user": None,
    "temperature": ("0", "0.0"),
    "timestamp_granularities": ("segment",),
    "timestamp_granularities[]": ("segment",),
    "chunking_strategy": ("auto",),
}
MAX_PROMPT = 4096
Format = Literal["json", "text", "verbose_json", "srt", "vtt"]


class Transcript(Answer):
    """What was said."""

    text: str


class TranscriptSegment(Answer):
    """A part of what was said, in seconds."""

    id: int
    start: float
    end: float
    text: str


class VerboseTranscript(Answer):
    """What was said, and when."""

    task: Literal["transcribe"] = "transcribe"
    language: str
    duration: float
    text: str
    segments: list[TranscriptSegment]


def transcription_routes(house: House) -> APIRouter:
    """The route, for an app."""
    router = APIRouter(route_class=SafeRoute, tags=["OpenAI"])

    @router.post(
        "/v1/audio/transcriptions", response_model=Transcript | VerboseTranscript, summary="Write down what is said"
    )
    async def transcribe(
        request: Request,
        *,
        file: Annotated[UploadFile, File(description="wav, flac, ogg, opus, mp3, webm, mp4 or m4a")],
        model: Annotated[str, Form()],
        language: Annotated[str, Form(description="as in ISO 639-1; empty: the model's guess")] = "",
        prompt: Annotated[str, Form(max_length=MAX_PROMPT)] = "",
        response_format: Annotated[Format, Form()] = "json",
        stream: Annotated[bool, Form()] = False,
        deadline_s: Annotated[float | None, Form()] = None,
    ) -> Response:
        _check_fields(await request.form())
        servable, ability = house.able(model, "transcription", request.scope)
        _check_language(language, ability)
        if stream and response_format not in ("json", "text"):
            what = f"response_format is {response_format!r}"
            raise InvalidInputError(f"{what}; a stream gives json or text", field="response_format")
        heard_s = 0.0

        def prepare() -> WalkCall:
            nonlocal heard_s
            audio = read_audio(file.file, ability.sample_rate, house.limits.audio_s)
            heard_s = len(audio) / ability.sample_rate
            call: WalkCall = ability.transcribe(audio, language, prompt)
            return call

        _, events = await house.start(servable, prepare, scope=request.scope, deadline_s=deadline_s)
        if stream:
            await events.first()
            messages = server_sent(house, _messages(events), done=False)
            return StreamedResponse(house, messages, (events,))
        async with events:
            return _answered(await events.result(), response_format, language, heard_s)

    return router


def srt(segments: Sequence[Segment]) -> str:
    """Segments as SubRip subtitles."""
    blocks = [
        f"{number}\n{_clock(each.start_s, ',')} --> {_clock(each.end_s, ',')}\n{_line(each.text)}\n"
        for number, each in enumerate(segments, 1)
    ]
    return "\n".join(blocks)


def vtt(segments: Sequence[Segment]) -> str:
    """Segments as WebVTT subtitles."""
    blocks = [f"{_clock(s.start_s, '.')} --> {_clock(s.end_s, '.')}\n{_escaped(_line(s.text))}\n" for s in segments]
    return "\n".join(["WEBVTT\n", *blocks])


def _check_fields(form: Any) -> None:
    for name, value in form.multi_items():
        if name not in FIELDS:
            raise InvalidInputError(
                f"there is no field {name[:80]!r}{did_you_mean(name[:80], FIELDS)}", field=name[:80]
            )
        idle = FIELDS[name]
        if idle is not None and value not in idle:
            raise InvalidInputError(f"{name} is {str(value)[:80]!r}; leave it out, or send {idle[0]}", field=name)


def _check_language(language: str, ability: TranscriptionAbility) -> None:
    if language and language not in ability.languages:
        hint = did_you_mean(language[:40], ability.languages)
        raise InvalidInputError(f"the model does not know the language {language[:40]!r}{hint}", field="language")


def _answered(result: WalkResult, form: Format, language: str, heard_s: float) -> Response:
    text, segments = result.outputs["transcript"], result.outputs["segments"]
    if form == "text":
        return Response(f"{text}\n", media_type="text/plain; charset=utf-8")
    if form == "srt":
        return Response(srt(segments), media_type="text/plain; charset=utf-8")
    if form == "vtt":
        return Response(vtt(segments), media_type="text/vtt; charset=utf-8")
    if form == "json":
        return answer(Transcript(text=text))
    told = [
        TranscriptSegment(id=number, start=each.start_s, end=each.end_s, text=each.text)
        for number, each in enumerate(segments)
    ]
    known = str(result.outputs.get("language", language))
    return answer(VerboseTranscript(task="transcribe", language=known, duration=heard_s, text=text, segments=told))


async def _messages(events: Events) -> AsyncGenerator[bytes, None]:
    async for event in events:
        if isinstance(event, Done):
            yield to_json({"type": "transcript.text.done", "text": event.result.outputs["transcript"]})
        elif event.name == "segment":
            yield to_json({"type": "transcript.text.delta", "delta": event.value.text})


def _clock(seconds: float, point: str) -> str:
    thousandths = max(0, round(1000 * seconds))
    whole, part = divmod(thousandths, 1000)
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}{point}{part:03}"


def _line(text: str) -> str:
    """One line of text: an empty line would end the subtitle."""
    return " ".join(text.split())


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
