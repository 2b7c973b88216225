"""Orpheus by name: a Llama that writes the codes of speech, and SNAC, which speaks them while it writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from mstar_plan.errors import InvalidInputError, WeightsError, did_you_mean
from mstar_plan.families.abilities import TextOptions, TextUsage, WalkCall
from mstar_plan.families.face import Port, WalkFace
from mstar_plan.families.files import read_json, read_tensors
from mstar_plan.families.language import GENERATE, language_graph
from mstar_plan.families.servable import FamilyConfig, Servable
from mstar_plan.models.llama.config import LlamaConfig
from mstar_plan.models.llama.decoder import LlamaDecoder
from mstar_plan.models.llama.vocabulary import BpeVocabulary
from mstar_plan.models.orpheus.graph import SPEAK, SpeakConfig, orpheus_graph
from mstar_plan.models.orpheus.tokens import OrpheusTokens
from mstar_plan.models.snac.checkpoint import load_snac
from mstar_plan.models.snac.codec import Snac
from mstar_plan.runtime.generation.kv_pool import PAGE, KVPool, KVShape
from mstar_plan.runtime.generation.writer import Writer, WriterConfig

CODEC = "snac"  # folder of the codec inside the model's
VOICES = ("tara", "leah", "jess", "leo", "dan", "mia", "zac", "zoe")  # of the published English models
NOISE_SEED = 0
# As published: canopyai/Orpheus-TTS samples with these, and lets an answer have 1200 tokens.
TEMPERATURE, TOP_P, REPETITION_PENALTY = 0.6, 0.8, 1.3
LEAST_TOKENS, TOKENS_PER_CHARACTER = 1200, 12  # 84 tokens are a second of speech, and slow speech has 7 letters in it


def load_orpheus(name: str, config: FamilyConfig, tokens: OrpheusTokens | None = None) -> Servable:
    """An Orpheus from the folder `config.weights`, as published (config.json, tokenizer.json, safetensors), with the
    codec's folder inside it as `snac` (config.json with pytorch_model.bin or model.safetensors).

    Raises:
        WeightsError: No folder is given, or something in it is missing, damaged or does not fit together.
    """
    folder = config.weights
    if folder is None or not folder.is_dir():
        raise WeightsError(
            f"model {name!r} is yours to bring; say weights=FOLDER, with the codec in FOLDER/{CODEC}", field="weights"
        )
    tokens = tokens or OrpheusTokens()
    published = read_json(folder / "config.json")
    if published.get("model_type") != "llama":
        raise WeightsError(f"{folder} holds a {published.get('model_type')!r}; llama is needed", field="model_type")
    sizes = LlamaConfig.from_published(published)
    if sizes.vocab_size < tokens.size:
        raise WeightsError(
            f"{folder} has a vocabulary of {sizes.vocab_size}; speech needs {tokens.size}", field="vocab_size"
        )
    ends = published.get("eos_token_id")
    more = [end for end in (ends if isinstance(ends, list) else [ends]) if isinstance(end, int)]
    vocabulary = BpeVocabulary.from_file(
        folder / "tokenizer.json", ends={tokens.end, *more}, start=published.get("bos_token_id")
    )
    codec = load_snac(folder / CODEC, config.device)
    decoder = LlamaDecoder(sizes, read_tensors(folder), dtype=getattr(torch, config.dtype), device=config.device)
    return orpheus_servable(name, decoder, vocabulary, codec, config, tokens=tokens, source=folder.name)


def orpheus_servable(
    name: str,
    decoder: LlamaDecoder,
    vocabulary: BpeVocabulary,
    codec: Snac,
    config: FamilyConfig,
    *,
    tokens: OrpheusTokens,
    source: str = "",
) -> Servable:
    """Puts a decoder and a codec together.

    Raises:
        WeightsError: The codec has other books than the tokens are made for.
    """
    sizes = decoder.config
    shape = KVShape(sizes.num_hidden_layers, sizes.num_key_value_heads, sizes.head_dim)
    pool = KVPool(shape, config.kv_tokens, dtype=decoder.dtype, device=decoder.device)
    writer = Writer(
        decoder, pool, vocabulary, WriterConfig(context=sizes.max_position_embeddings, wait_s=config.wait_s)
    )
    language = language_graph("language", writer)
    ability = OrpheusAbility(writer, vocabulary, codec, tokens)
    return Servable(
        name=name,
        graph=orpheus_graph(name, language, language.walks[GENERATE], codec, SpeakConfig(tokens)),
        faces={SPEAK: orpheus_face(ability)},
        description="Orpheus, a language model that speaks.",
        source=source,
        threads=0,
        speech=ability,
    )


class OrpheusAbility:
    """Speaks text; see `SpeechAbility`.

    Args:
        writer: Of the language model.
        vocabulary: Its tokenizer.
        codec: What it speaks through.
        tokens: How speech is written.
    """

    def __init__(self, writer: Writer, vocabulary: BpeVocabulary, codec: Snac, tokens: OrpheusTokens) -> None:
        self.voices: tuple[str, ...] = VOICES
        self._writer, self._vocabulary, self._tokens = writer, vocabulary, tokens
        self.sample_rate = codec.config.sampling_rate

    def speak(self, text: str, voice: str = "", speed: float = 1.0) -> WalkCall:
        """Emits "audio" [1, n], piece by piece; their concatenation is the output "speech".

        Raises:
            InvalidInputError: There is no text, the voice is unknown, or a speed other than 1 is asked for.
            LimitExceededError: The text, and the speech that it may take, are longer than the context or the pool.
            OverloadedError: There was no room in time.
        """
        if speed != 1.0:
            raise InvalidInputError(f"speed is {speed}; this model speaks at its own: leave it at 1", field="speed")
        return self.speak_with(
            text, voice, TextOptions(temperature=TEMPERATURE, top_p=TOP_P, repetition_penalty=REPETITION_PENALTY)
        )

    def speak_with(self, text: str, voice: str, options: TextOptions, noise_seed: int | None = NOISE_SEED) -> WalkCall:
        """As `speak`, with all that can be chosen; no noise in the codec where its seed is None.

        Where the options do not say how many tokens, it is as many as the text may take.
        """
        if options.n != 1:
            raise InvalidInputError(f"n is {options.n}; speech has one answer: leave it at 1", field="n")
        if noise_seed is not None and not 0 <= noise_seed < 2**64:
            raise InvalidInputError(f"noise_seed is {noise_seed}; it needs 0 to 2^64 - 1", field="noise_seed")
        prompt = self.prompt(text, voice)
        if options.max_tokens is None:
            room = min(self._writer.config.context, self._writer.pool.pages * PAGE) - len(prompt)
            most = min(LEAST_TOKENS + TOKENS_PER_CHARACTER * len(text), max(1, room))
            options = replace(options, max_tokens=most)
        writing = self._writer.open(prompt, options)
        return WalkCall(SPEAK, {"writing": writing, "noise_seed": noise_seed}, ("audio",))

    def prompt(self, text: str, voice: str = "") -> list[int]:
        """Tokens that ask for the speech of a text in a voice; the first voice where none is named.

        Raises:
            InvalidInputError: There is no text, or the voice is unknown.
        """
        if not text.strip():
            raise InvalidInputError("there is no text to speak; send some", field="text")
        voice = voice or self.voices[0]
        if voice not in self.voices:
            raise InvalidInputError(f"there is no voice {voice!r}{did_you_mean(voice, self.voices)}", field="voice")
        start = [] if self._vocabulary.start is None else [self._vocabulary.start]
        return self._tokens.prompt([*start, *self._vocabulary.encode(f"{voice}: {text}", literal=True)])


def orpheus_face(ability: OrpheusAbility) -> WalkFace:
    """The speak walk for wires that know no more than ports."""

    def prepare(values: Mapping[str, Any]) -> Mapping[str, Any]:
        options = TextOptions(
            max_tokens=values["max_tokens"] or None,
            temperature=float(values["temperature"]),
            top_p=float(values["top_p"]),
            repetition_penalty=float(values["repetition_penalty"]),
            seed=values["seed"] if values["seed"] >= 0 else None,
        )
        noise_seed = values["noise_seed"] if values["noise_seed"] >= 0 else None
        return ability.speak_with(values["text"], values["voice"], options, noise_seed).values

    audio = Port("tensor", shape=(1, None), description=f"samples in -1 to 1, {ability.sample_rate} a second")
    return WalkFace(
        SPEAK,
        inputs={
            "text": Port("text", description="what to say", example="Hello", most=1 << 16),
            "voice": Port("text", default="", description=f"one of {', '.join(ability.voices)}; the first if empty"),
            "max_tokens": Port("integer", default=0, description="most tokens, 84 a second; 0: what the text may take"),
            "temperature": Port("number", default=TEMPERATURE, description="0 is greedy"),
            "top_p": Port("number", default=TOP_P, description="1 is off"),
            "repetition_penalty": Port("number", default=REPETITION_PENALTY, description="1 is off"),
            "seed": Port("integer", default=-1, description="of the draws; negative: one is drawn"),
            "noise_seed": Port("integer", default=NOISE_SEED, description="of the codec's noise; negative: no noise"),
        },
        outputs={
            "speech": audio,
            "frames_spoken": Port("integer", description="frames of the codec"),
            "usage": Port("json", description="tokens read, found in the cache, and written"),
        },
        streams={"audio": audio},
        description="Speaks a text.",
        prepare=prepare,
        present=_present,
    )


def _present(wire: str, value: Any) -> Any:
    if wire == "usage":
        assert isinstance(value, TextUsage)
        return {name: getattr(value, name) for name in ("prompt_tokens", "cached_tokens", "completion_tokens")}
    return value
