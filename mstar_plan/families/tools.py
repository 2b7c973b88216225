"""Calling functions: how a model is told of them, and what it writes to call one, in the form of Hermes' templates."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from mstar_plan.families.abilities import Tool, ToolCall

TOOL_STARTS = ("<tool_call>", "{")
_TAGGED = re.compile(r"<tool_call>\s*(.*?)\s*(?:</tool_call>|$)", re.DOTALL)


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
    if not isinstance(found, dict) or found.get("name") not in names:
        return None
    arguments = found.get("arguments", found.get("parameters", {}))
    written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return ToolCall(str(found["name"]), written, id=f"call_{number}")
