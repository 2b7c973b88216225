"""Language models: the walk that writes, and the ability to chat and to complete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mstar_plan.errors import InvalidInputError, WeightsError
from mstar_plan.families.abilities import ChatMessage, TextCall, TextDelta, TextOptions, TextUsage, Tool, ToolCall
from mstar_plan.families.face import Port, WalkFace
from mstar_plan.families.servable import FamilyConfig, Servable
from mstar_plan.families.tools import (
    TOOL_STARTS,
    parse_tools,
    plain_arguments,
    tool_prompt,
    tool_schemas,
    written_calls,
)
from mstar_plan.models.llama.chat_template import ChatTemplate
from mstar_plan.models.llama.decoder import LlamaDecoder
from mstar_plan.models.llama.vocabulary import BpeVocabulary
from mstar_plan.runtime.generation.kv_pool import KVPool, KVShape
from mstar_plan.runtime.generation.writer import Writer, WriterConfig
from mstar_plan.walks.graph import Graph
from mstar_plan.walks.step import Loop, Node
from mstar_plan.walks.walk import Walk

GENERATE = "generate"
MOST_STEPS = 1_000_000  # a step may read nothing where prompts queue up; tokens are bounded by the request itself
ROLES = ("system", "user", "assistant", "tool")


def generate_walk() -> Walk:
    """A prompt is read in chunks and answered token by token, each a step of one loop.

    Input "writing" (what `Writer.open` gives); emits "deltas" (tuple of TextDelta) every step; outputs "answers" (the
    deltas of all steps) and "usage" (TextUsage).
    """
    writing = Loop(
        Node("step", ("writing",), ("deltas", "done", "usage")),
        times=MOST_STEPS,
        until="done",
        collect={"deltas": "answers"},
        name="writing",
    )
    return Walk(GENERATE, writing, ("writing",), ("answers", "usage"))


def language_graph(name: str, writer: Writer) -> Graph:
    """The graph of one language model."""
    return Graph(name, {"step": writer}, {GENERATE: generate_walk()})


class LanguageAbility:
    """Chats and completes; see `TextAbility`.

    Args:
        writer: Of the model.
        vocabulary: Its tokenizer.
        template: How it wants a conversation written; None: it cannot chat.
    """

    sees = False
    tool_starts: tuple[str, ...] = TOOL_STARTS

    def __init__(self, writer: Writer, vocabulary: BpeVocabulary, template: ChatTemplate | None) -> None:
        self._writer, self._vocabulary, self._template = writer, vocabulary, template
        self.context_tokens = writer.config.context

    @property
    def chats(self) -> bool:
        """Whether it knows how a conversation is written."""
        return self._template is not None

    def chat(self, messages: Sequence[ChatMessage], options: TextOptions, tools: Sequence[Tool] = ()) -> TextCall:
        """The answer to a conversation.

        Raises:
            InvalidInputError: There is no message, a role is unknown, or there are images.
            LimitExceededError: It is too long.
            OverloadedError: There was no room in time.
        """
        prompt = self.read(messages, tools)
        return self._call(prompt, options)

    def read(self, messages: Sequence[ChatMessage], tools: Sequence[Tool] = ()) -> list[int]:
        """Tokens of the prompt that asks for the next message."""
        if self._template is None:
            raise InvalidInputError("the model has no chat template; use completions", field="model")
        if not messages:
            raise InvalidInputError("there is no message; send at least one of the user", field="messages")
        plain = [_plain(message, self._template.takes_calls) for message in messages]
        if tools and not self._template.takes_tools:
            plain = _with_system(plain, tool_prompt(tools))
            tools = ()
        return self._template.encode(self._vocabulary, plain, tool_schemas(tools))

    def complete(self, prompt: str | Sequence[int], options: TextOptions) -> TextCall:
        """What follows a text, or its token ids.

        Raises:
            InvalidInputError: It is empty, or an id is not in the vocabulary. Otherwise as `chat`.
        """
        start = [] if self._vocabulary.start is None else [self._vocabulary.start]
        if isinstance(prompt, str):
            return self._call(start + self._vocabulary.encode(prompt), options)
        self._vocabulary.check(prompt)
        return self._call(list(prompt), options)

    def parse_tools(self, text: str, tools: Sequence[Tool]) -> tuple[str, tuple[ToolCall, ...]]:
        """See `TextAbility`."""
        return parse_tools(text, tools)

    def _call(self, prompt: list[int], options: TextOptions) -> TextCall:
        writing = self._writer.open(prompt, options)
        text = self._vocabulary.decode(prompt) if options.echo else ""
        return TextCall(GENERATE, {"writing": writing}, ("deltas",), prompt=text)


def language_face(ability: LanguageAbility) -> WalkFace:
    """The generate walk for wires that know no more than ports."""

    def prepare(values: Mapping[str, Any]) -> Mapping[str, Any]:
        options = TextOptions(
            max_tokens=values["max_tokens"],
            temperature=float(values["temperature"]),
            top_p=float(values["top_p"]),
            seed=values["seed"] if values["seed"] >= 0 else None,
        )
        if values["chat"]:
            return ability.chat([ChatMessage("user", values["prompt"])], options).values
        return ability.complete(values["prompt"], options).values

    return WalkFace(
        GENERATE,
        inputs={
            "prompt": Port("text", description="what to answer or to continue", example="Hello", most=1 << 20),
            "chat": Port("flag", default=ability.chats, description="the prompt is a user's message"),
            "max_tokens": Port("integer", default=64, description="most tokens to write"),
            "temperature": Port("number", default=0.0, description="0 is greedy"),
            "top_p": Port("number", default=1.0, description="1 is off"),
            "seed": Port("integer", default=-1, description="of the draws; negative: one is drawn"),
        },
        outputs={
            "answers": Port("text", description="the answer"),
            "usage": Port("json", description="tokens read, found in the cache, and written"),
        },
        streams={"deltas": Port("text", description="what a step has added")},
        description="Answers or continues a text.",
        prepare=prepare,
        present=_present,
    )


def language_servable(
    name: str,
    decoder: LlamaDecoder,
    vocabulary: BpeVocabulary,
    template: ChatTemplate | None,
    config: FamilyConfig,
    *,
    description: str,
    licence: str = "",
    source: str = "",
) -> Servable:
    """Puts a Llama decoder on the writing engine.

    Raises:
        WeightsError: The tokenizer has more tokens than the model.
    """
    sizes = decoder.config
    if vocabulary.size > sizes.vocab_size:
        raise WeightsError(
            f"the tokenizer has {vocabulary.size} tokens and the model {sizes.vocab_size}; they do not belong together",
            field="vocab_size",
        )
    shape = KVShape(sizes.num_hidden_layers, sizes.num_key_value_heads, sizes.head_dim)
    pool = KVPool(shape, config.kv_tokens, dtype=decoder.dtype, device=decoder.device)
    bounds = WriterConfig(context=sizes.max_position_embeddings, wait_s=config.wait_s, attention=config.attention)
    writer = Writer(decoder, pool, vocabulary, bounds)
    ability = LanguageAbility(writer, vocabulary, template)
    return Servable(
        name=name,
        graph=language_graph(name, writer),
        faces={GENERATE: language_face(ability)},
        description=description,
        licence=licence,
        source=source,
        threads=0,
        text=ability,
    )


def _present(wire: str, value: Any) -> Any:
    """Plain text of deltas of the first answer, plain data of the usage."""
    if wire == "usage":
        assert isinstance(value, TextUsage)
        return {name: getattr(value, name) for name in ("prompt_tokens", "cached_tokens", "completion_tokens")}
    deltas: Sequence[TextDelta] = [d for step in value for d in step] if wire == "answers" else value
    return "".join(delta.text for delta in deltas if delta.index == 0)


def _plain(message: ChatMessage, takes_calls: bool) -> dict[str, Any]:
    if message.role not in ROLES:
        known = ", ".join(ROLES)
        raise InvalidInputError(f"a message's role is {message.role!r}; use one of {known}", field="messages")
    if message.images:
        raise InvalidInputError("a message holds an image, and this model does not see; send text", field="messages")
    plain: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_call_id:
        plain["tool_call_id"] = message.tool_call_id
    if message.tool_calls and takes_calls:
        plain["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": plain_arguments(call)}}
            for call in message.tool_calls
        ]
    elif message.tool_calls:
        plain["content"] = f"{message.content}\n{written_calls(message.tool_calls)}".strip()
    return plain


def _with_system(messages: list[dict[str, Any]], text: str) -> list[dict[str, Any]]:
    first = messages[0]
    if first["role"] == "system":
        return [{**first, "content": f"{first['content']}\n\n{text}"}, *messages[1:]]
    return [{"role": "system", "content": text}, *messages]
