"""Bodies of `/v1/chat/completions`: the conversation that is sent, and the answers."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from mstar_plan.errors import InvalidInputError
from mstar_plan.families.abilities import TextOptions, Tool
from mstar_plan.serving.http.body import Answer, Body, OpenAIBody
from mstar_plan.serving.http.config import HttpLimits
from mstar_plan.serving.http.text_body import TextBody, Usage
from mstar_plan.serving.http.tool_use import Choice, checked_tools

# --- what is sent -----------------------------------------------------------------------------------------------------


class TextPart(Body):
    """A text among the parts of a message."""

    type: Literal["text"]
    text: str


class ImageUrl(Body):
    """Where an image is: in the URL itself, as data:image/png;base64,..."""

    url: str
    detail: str | None = None


class ImagePart(Body):
    """An image among the parts of a message."""

    type: Literal["image_url"]
    image_url: ImageUrl


Part = Annotated[TextPart | ImagePart, Field(discriminator="type")]


class CalledFunction(Body):
    """The function of a tool call of an earlier answer."""

    name: str
    arguments: str


class CalledTool(Body):
    """A tool call of an earlier answer."""

    id: str
    type: Literal["function"] = "function"
    function: CalledFunction
    index: int | None = None


class Message(OpenAIBody):
    """One message of the conversation."""

    UNSUPPORTED: ClassVar[dict[str, tuple[Any, ...]]] = {
        "refusal": (), "audio": (), "function_call": (), "annotations": ([],), "reasoning_content": ("",),
    }  # fmt: skip

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[Part] | None = None
    name: str | None = None
    tool_calls: list[CalledTool] | None = None
    tool_call_id: str | None = None


class Function(Body):
    """A function that the model may call."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ToolDefinition(Body):
    """A tool that the model may use."""

    type: Literal["function"]
    function: Function


class NamedFunction(Body):
    """Name of the function that must be called."""

    name: str


class NamedTool(Body):
    """The tool that must be used."""

    type: Literal["function"]
    function: NamedFunction


class JsonSchema(Body):
    """The schema that the answer must fit."""

    name: str | None = None
    description: str | None = None
    schema_: dict[str, Any] = Field(alias="schema")
    strict: bool | None = None


class TextFormat(Body):
    """Any text."""

    type: Literal["text"]


class ObjectFormat(Body):
    """Any JSON object."""

    type: Literal["json_object"]


class SchemaFormat(Body):
    """JSON that fits a schema."""

    type: Literal["json_schema"]
    json_schema: JsonSchema


class ChatBody(TextBody):
    """A conversation to answer."""

    UNSUPPORTED: ClassVar[dict[str, tuple[Any, ...]]] = {
        "modalities": (["text"],), "audio": (), "prediction": (), "web_search_options": (), "functions": ([],),
        "function_call": ("none",), "reasoning_effort": ("none",), "verbosity": ("medium",), "best_of": (1,),
    }  # fmt: skip

    messages: list[Message] = Field(min_length=1, max_length=4096)
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    tools: list[ToolDefinition] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    response_format: Annotated[TextFormat | ObjectFormat | SchemaFormat, Field(discriminator="type")] | None = None

    def choice(self, limits: HttpLimits) -> Choice:
        """The tools that the model is told of, and whether it must use one.

        Raises:
            InvalidInputError: A name is wrong, or one must be used that is not there.
            LimitExceededError: There are too many.
        """
        tools = [
            Tool(each.function.name, each.function.description or "", each.function.parameters or {})
            for each in self.tools or []
        ]
        named = self.tool_choice.function.name if isinstance(self.tool_choice, NamedTool) else ""
        how = self.tool_choice if isinstance(self.tool_choice, str) else "named" if named else "auto"
        return checked_tools(tools, how, named, limits.tools, one=self.parallel_tool_calls is False)

    def text_options(self, limits: HttpLimits, choice: Choice) -> TextOptions:
        """How to write. Where a tool must be used, the answer is a call of it, whatever format is asked for."""
        if self.max_tokens is not None and self.max_completion_tokens not in (None, self.max_tokens):
            what = f"max_tokens is {self.max_tokens} and max_completion_tokens is {self.max_completion_tokens}"
            raise InvalidInputError(f"{what}; send one of them", field="max_completion_tokens")
        most = self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens
        if self.top_logprobs is not None and not self.logprobs:
            raise InvalidInputError("top_logprobs needs logprobs: true", field="top_logprobs")
        schema = choice.schema
        if schema is None and isinstance(self.response_format, ObjectFormat):
            schema = {}
        elif schema is None and isinstance(self.response_format, SchemaFormat):
            schema = self.response_format.json_schema.schema_
        logprobs = (self.top_logprobs or 0) if self.logprobs else None
        return self.options(limits, max_tokens=most, logprobs=logprobs, json_schema=schema)


# --- what is answered -------------------------------------------------------------------------------------------------


class TopLogprob(Answer):
    """A token that could have been written, and how likely it was."""

    token: str
    logprob: float
    bytes: list[int]


class ChatLogprob(TopLogprob):
    """A token that was written, and the likeliest in its place."""

    top_logprobs: list[TopLogprob]


class ChatLogprobs(Answer):
    """Tokens that were written."""

    content: list[ChatLogprob]
    refusal: None = None


class FunctionCall(Answer):
    """A function to call: its name, and its arguments as JSON."""

    name: str
    arguments: str


class AnsweredToolCall(Answer):
    """A call that the model wants made; `index` in streams alone."""

    index: int | None = None
    id: str
    type: Literal["function"] = "function"
    function: FunctionCall


class AnsweredMessage(Answer):
    """An answer, or in a stream what was added to it."""

    role: Literal["assistant"] | None = None
    content: str | None = None
    refusal: None = None
    tool_calls: list[AnsweredToolCall] | None = None


class ChatChoice(Answer):
    """One answer."""

    index: int
    message: AnsweredMessage
    logprobs: ChatLogprobs | None
    finish_reason: str | None


class ChatCompletion(Answer):
    """The answers to a conversation."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage


class ChunkChoice(Answer):
    """What was added to one answer."""

    index: int
    delta: AnsweredMessage
    logprobs: ChatLogprobs | None
    finish_reason: str | None


class ChatChunk(Answer):
    """Event of a stream."""

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: Usage | None = None
