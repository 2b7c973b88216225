"""Calling functions: how a model is told of them, and what it writes to call one, in the form of Hermes' templates."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from mstar_plan.families.abilities import Tool, ToolCall

TOOL_STARTS = ("<tool_call>", "{")
_TAGGED = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)


def tool_schemas(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    """Tools as chat templates want them."""
    return [
        {
            "type": "function",
            "function": {"name": t.name, "description": t.description, "parameters": dict(t.parameters)},
        }
        for t in tools
    ]


def tool_prompt(tools: Sequence[Tool]) -> str:
    """What to tell a model whose template knows no tools."""
    listed = "\n".join(json.dumps(schema["function"], ensure_ascii=False) for schema in tool_schemas(tools))
    return (
        f"You may call these functions:\n{listed}\nTo call one, answer with nothing but\n"
        '<tool_call>{"name": NAME, "arguments": {...}}</tool_call>'
    )


def written_calls(calls: Sequence[ToolCall]) -> str:
    """What a model wrote to call functions, for templates that know no tools; the inverse of `parse_tools`."""
    objects = [{"name": call.name, "arguments": plain_arguments(call)} for call in calls]
    return "\n".join(f"<tool_call>{json.dumps(each, ensure_ascii=False)}</tool_call>" for each in objects)


def plain_arguments(call: ToolCall) -> Any:
    """A call's arguments as data, which templates turn into JSON themselves; as text where they are no JSON object."""
    try:
        found = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return call.arguments
    return found if isinstance(found, dict) else call.arguments


def parse_tools(text: str, tools: Sequence[Tool]) -> tuple[str, tuple[ToolCall, ...]]:
    """Splits an answer into its text and the calls of known functions that it holds.

    A call is JSON with "name" and "arguments", in <tool_call> tags or all of the answer. What is no call of a known
    function stays text.
    """
    names = {tool.name for tool in tools}
    calls: list[ToolCall] = []

    def take(match: re.Match[str]) -> str:
        call = _call(match.group(1), names, len(calls))
        if call is None:
            return match.group(0)
        calls.append(call)
        return ""

    rest = _TAGGED.sub(take, text).strip()
    if not calls:
        whole = _call(text.strip(), names, 0)
        return ("", (whole,)) if whole is not None else (text, ())
    return rest, tuple(calls)


def _call(text: str, names: set[str], number: int) -> ToolCall | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    name = found.get("name") if isinstance(found, dict) else None
    if not isinstance(name, str) or name not in names:
        return None
    arguments = found.get("arguments", found.get("parameters", {}))
    written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return ToolCall(name, written, id=f"call_{number}")
