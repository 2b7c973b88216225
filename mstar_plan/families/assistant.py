"""The talking assistant by name: Silero, Whisper, SmolLM2 and Hibari on one graph, with all of their abilities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from mstar_plan.errors import InvalidInputError, LimitExceededError
from mstar_plan.families.abilities import ChatMessage, TextOptions, TextUsage, WalkCall
from mstar_plan.families.conversation import CONVERSE, DELTAS, AskChat, Begin, Dialogue, assistant_graph
from mstar_plan.families.face import Port, WalkFace
from mstar_plan.families.language import GENERATE, LanguageAbility
from mstar_plan.families.llama import load_smollm2
from mstar_plan.families.servable import FamilyConfig, Servable
from mstar_plan.families.speech import (
    SEED,
    HibariAbility,
    audio_of,
    audio_ports,
    heard_audio,
    load_whisper_tiny,
    present_heard,
    speak_face,
)
from mstar_plan.models.speech.speaker import SAMPLE_RATE as SPEAKS
from mstar_plan.models.speech.speaker import Speaker, SpeakerConfig
from mstar_plan.models.speech.speaking import SPEAK, speaking_graph
from mstar_plan.models.speech.voice_activity import SAMPLE_RATE as HEARS
from mstar_plan.runtime.generation.writer import Writer
from mstar_plan.types import FloatArray

MOST_MESSAGES = 1000
WRITTEN_INPUT = "writing"


def load_assistant(name: str, config: FamilyConfig) -> Servable:
    """A talking assistant: Whisper tiny.en hears, SmolLM2 (or a Llama in `config.weights`) writes, Hibari speaks.

    Device and dtype are the language model's; what hears and speaks runs on the CPU.

    Raises:
        UnavailableError: The packaged weights of a part are not installed.
        WeightsError: Those of a part are damaged.
    """
    language = load_smollm2(name, config)
    ears = replace(config, device="cpu", weights=None)
    return assistant_servable(name, load_whisper_tiny(name, ears), language, Speaker(SpeakerConfig()))


def assistant_servable(name: str, hearing: Servable, language: Servable, speaker: Speaker) -> Servable:
    """Puts an assistant together.

    Args:
        name: Of the whole.
        hearing: Transcribes.
        language: Chats, through the writing engine.
        speaker: Speaks.
    """
    writer, text = language.graph.components["step"], language.text
    assert isinstance(writer, Writer), "the language model is on the writing engine"
    assert isinstance(text, LanguageAbility), "the language model chats"
    speech = HibariAbility(speaker)
    speaking = speaking_graph("speaking", speaker)
    silent = {"answers": (), "usage": TextUsage(0, 0, 0)}
    generate = language.graph.walk(GENERATE)
    ask = AskChat(writing_begin(writer, text), (WRITTEN_INPUT,))
    graph = assistant_graph(
        name,
        hearing=hearing.graph,
        language=language.graph,
        generate=generate,
        ask=ask,
        speaking=speaking,
        speaker=speaker,
        silent=silent,
    )
    conversation = AssistantAbility(speech)
    faces = {**hearing.faces, **language.faces, SPEAK: speak_face(speech)}
    licences = dict.fromkeys(part for part in (hearing.licence, language.licence, "Apache-2.0") if part)
    return Servable(
        name=name,
        graph=graph,
        faces={**faces, CONVERSE: converse_face(conversation, language.faces[GENERATE])},
        description="A talking assistant: it hears, a language model answers, and it speaks while the model writes.",
        licence=", ".join(licences),
        source="; ".join(part for part in (hearing.source, language.source, "hibari-tts on PyPI") if part),
        threads=language.threads,
        text=text,
        speech=speech,
        transcription=hearing.transcription,
        conversation=conversation,
        close=language.close,
    )


def writing_begin(writer: Writer, text: LanguageAbility) -> Begin:
    """Begins an answer on a writing engine, from inside a walk: where its pool is full, at once with an error."""
    impatient = Writer(writer.model, writer.pool, writer.vocabulary, replace(writer.config, wait_s=0.0))

    def begin(messages: Sequence[ChatMessage], options: TextOptions) -> Mapping[str, Any]:
        return {WRITTEN_INPUT: impatient.open(text.read(messages), options)}

    return begin


class AssistantAbility:
    """Answers speech with speech; see `ConversationAbility`.

    Args:
        speech: Its voice.
    """

    hears = HEARS
    speaks = SPEAKS

    def __init__(self, speech: HibariAbility) -> None:
        self._speech = speech

    def converse(
        self, audio: FloatArray, messages: Sequence[ChatMessage], options: TextOptions, voice: str = ""
    ) -> WalkCall:
        """Emits "transcript", "deltas" and "audio"; outputs these as a whole: "transcript", "answers" and "speech".

        Where nothing was said, the transcript is empty, and there are neither deltas nor audio.

        Args:
            audio: [n] at 16 kHz, what the user says now.
            messages: The conversation before.
            options: How to write the answer.
            voice: The first one if empty.

        Raises:
            InvalidInputError: The audio is no [n] of finite numbers, the voice is unknown, or several answers are asked
                for.
            LimitExceededError: The audio is too long, or there are too many messages.
        """
        if options.n != 1:
            raise InvalidInputError(f"n is {options.n}; a conversation has one answer, so leave it at 1", field="n")
        if len(messages) > MOST_MESSAGES:
            raise LimitExceededError(
                f"there are {len(messages)} messages; at most {MOST_MESSAGES} are taken", field="messages"
            )
        values = {
            "microphone": heard_audio(audio),
            "language": "",
            "prompt": "",
            "dialogue": Dialogue(tuple(messages), options),
            "voice": self._speech.voice(voice),
            "speed": 1.0,
            "seed": SEED,
        }
        return WalkCall(CONVERSE, values, ("transcript", DELTAS, "audio"))


def converse_face(ability: AssistantAbility, written: WalkFace) -> WalkFace:
    """The converse walk for wires that know no more than ports.

    Args:
        ability: Makes its inputs.
        written: Face of the language model's walk: what it gives is given here as well.
    """

    def prepare(values: Mapping[str, Any]) -> Mapping[str, Any]:
        options = TextOptions(
            max_tokens=values["max_tokens"],
            temperature=float(values["temperature"]),
            seed=values["seed"] if values["seed"] >= 0 else None,
        )
        before = [ChatMessage("system", values["system"])] if values["system"] else []
        return ability.converse(audio_of(values), before, options, values["voice"]).values

    def present(wire: str, value: Any) -> Any:
        return written.present(wire, value) if wire in written.outputs or wire == DELTAS else present_heard(wire, value)

    audio = Port("tensor", shape=(1, None), description=f"samples in -1 to 1, {ability.speaks} a second")
    segment = "start_s and end_s in seconds, and text"
    return WalkFace(
        CONVERSE,
        inputs={
            **audio_ports(),
            "system": Port("text", default="", description="how to behave", most=1 << 16),
            "voice": Port("text", default="", description="of the answer; the first if empty"),
            "max_tokens": Port("integer", default=64, description="most tokens to write"),
            "temperature": Port("number", default=0.0, description="0 is greedy"),
            "seed": Port("integer", default=-1, description="of the draws; negative: one is drawn"),
        },
        outputs={
            "transcript": Port("text", description="what was said; empty if nothing was"),
            "segments": Port("json", description=f"its parts: {segment}"),
            **written.outputs,
            "speech": Port(
                "tensor", shape=(1, None), description=f"the spoken answer, {ability.speaks} samples a second"
            ),
        },
        streams={
            "segment": Port("json", description=segment),
            "transcript": Port("text", description="what was said"),
            DELTAS: written.streams[DELTAS],
            "audio": audio,
        },
        description="Answers speech with speech.",
        prepare=prepare,
        present=present,
    )
