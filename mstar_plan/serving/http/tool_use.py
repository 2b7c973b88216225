"""Tools of a conversation: which the model is told of, whether it must use one, and when its text may be shown."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from mstar_plan.errors import InvalidInputError, LimitExceededError
from mstar_plan.families.abilities import Tool, ToolCall

_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}")


class ToolParser(Protocol):
    """What knows how a model writes calls; see `TextAbility.parse_tools`."""

    def parse_tools(self, text: str, tools: Sequence[Tool]) -> tuple[str, tuple[ToolCall, ...]]:
        """Splits an answer into its text and its calls."""
        ...


@dataclass(frozen=True, eq=False)
class Choice:
    """The tools of one request.

    Attributes:
        tools: What the model is told of.
        schema: Of the answer, where it must be a call.
        one: At most one call is given on.
    """

    tools: tuple[Tool, ...] = ()
    schema: Mapping[str, Any] | None = None
    one: bool = False

    def split(self, parser: ToolParser, text: str) -> tuple[str, tuple[ToolCall, ...]]:
        """An answer's text and calls; each call has an id of its own."""
        if not self.tools:
            return text, ()
        rest, calls = parser.parse_tools(text, self.tools)
        kept = calls[:1] if self.one else calls
        return rest, tuple(ToolCall(call.name, call.arguments, f"call_{secrets.token_hex(12)}") for call in kept)

    def gate(self, parser: ToolParser) -> Gate:
        """What of an answer may be shown before it has ended."""
        if not self.tools:
            return Gate(())
        starts = None if self.schema is not None else getattr(parser, "tool_starts", None)
        return Gate(starts)


class Gate:
    """Lets the text of an answer through until a call may have begun; what is held is told at its end.

    Args:
        starts: Texts that a call begins with; empty: there are no calls, None: hold everything.
    """

    def __init__(self, starts: Sequence[str] | None) -> None:
        self._starts = None if starts is None else tuple(starts)
        self.shown = 0  # characters that have gone through
        self._text = ""
        self._shut = False

    def add(self, text: str) -> str:
        """The text that may be shown now that the answer goes on so."""
        self._text += text
        if self._starts is None or self._shut:
            return ""
        found = [at for start in self._starts if (at := self._text.find(start, self.shown)) >= 0]
        self._shut = bool(found)
        until = min(found) if found else len(self._text) - self._half_begun()
        part, self.shown = self._text[self.shown : until], max(until, self.shown)
        return part

    def _half_begun(self) -> int:
        """Characters at the end that may be the first ones of a call."""
        longest = max((len(start) for start in self._starts or ()), default=1) - 1
        for length in range(min(longest, len(self._text) - self.shown), 0, -1):
            if any(start.startswith(self._text[-length:]) for start in self._starts or ()):
                return length
        return 0


def checked_tools(tools: Sequence[Tool], how: str, named: str, most: int, *, one: bool) -> Choice:
    """Returns the choice that a request makes.

    Args:
        tools: What it offers.
        how: "none", "auto", "required" or "named".
        named: Name of the function that must be called.
        most: How many may be offered.
        one: It wants no more than one call.

    Raises:
        InvalidInputError: A name is empty, too long, not plain or there twice, or the named one is not there.
        LimitExceededError: There are too many.
    """
    if len(tools) > most:
        raise LimitExceededError(f"there are {len(tools)} tools; at most {most} are taken", field="tools")
    names = [tool.name for tool in tools]
    for name in names:
        if not _NAME.fullmatch(name) or names.count(name) > 1:
            what = f"a function is called {name[:80]!r}" + (", and so is another" if names.count(name) > 1 else "")
            raise InvalidInputError(f"{what}; use 1 to 64 of a-z, A-Z, 0-9, _, - and .", field="tools")
    if how in ("required", "named") and not tools:
        raise InvalidInputError("tool_choice asks for a tool, and there is none", field="tool_choice")
    if named and named not in names:
        known = ", ".join(names)
        raise InvalidInputError(f"tool_choice names {named[:80]!r}; the tools are {known}", field="tool_choice")
    if how == "none":
        return Choice()
    offered = tuple(tool for tool in tools if not named or tool.name == named)
    return Choice(offered, call_schema(offered) if how in ("required", "named") else None, one)


def call_schema(tools: Sequence[Tool]) -> dict[str, Any]:
    """The JSON schema of a call of one of these tools: {"name": its name, "arguments": what its schema says}."""
    shared: dict[str, Any] = {}
    calls = []
    for number, tool in enumerate(tools):
        parameters = _moved(dict(tool.parameters) or {"type": "object"}, number)
        for where in ("$defs", "definitions"):
            definitions = parameters.pop(where, {})
            if not isinstance(definitions, dict):
                raise InvalidInputError(f"{where} of function {tool.name!r} are no schemas by name", field="tools")
            for name, schema in definitions.items():
                shared[f"{number}_{name}"] = schema
        properties = {"name": {"const": tool.name}, "arguments": parameters}
        calls.append(
            {
                "type": "object",
                "properties": properties,
                "required": ["name", "arguments"],
                "additionalProperties": False,
            }
        )
    schema = calls[0] if len(calls) == 1 else {"anyOf": calls}
    return {**schema, "$defs": shared} if shared else schema


def _moved(schema: Any, number: int) -> Any:
    """A schema that stands inside another one now: its references point to the definitions' new place."""
    if isinstance(schema, dict):
        moved = {key: _moved(value, number) for key, value in schema.items()}
        ref = moved.get("$ref")
        if isinstance(ref, str):
            for where in ("#/$defs/", "#/definitions/"):
                if ref.startswith(where):
                    moved["$ref"] = f"#/$defs/{number}_{ref.removeprefix(where)}"
        return moved
    return [_moved(each, number) for each in schema] if isinstance(schema, list) else schema
