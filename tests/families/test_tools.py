"""Calls of functions in an answer: tagged, or all of it; what is no call of a known function stays text."""

from __future__ import annotations

import pytest

from mstar_plan.families.abilities import Tool
from mstar_plan.families.tools import parse_tools, tool_prompt, tool_schemas

TOOLS = (Tool("move", "moves", {"type": "object"}), Tool("stop"))


@pytest.mark.parametrize(
    ("text", "rest", "names"),
    [
        ('<tool_call>{"name": "move", "arguments": {"x": 1}}</tool_call>', "", ["move"]),
        (
            'I go. <tool_call>{"name": "move"}</tool_call><tool_call>{"name": "stop"}</tool_call>',
            "I go.",
            ["move", "stop"],
        ),
        ('{"name": "stop", "arguments": {}}', "", ["stop"]),
        ('<tool_call>{"name": "stop"}', "", ["stop"]),
        ('{"name": "fly", "arguments": {}}', '{"name": "fly", "arguments": {}}', []),
        ("<tool_call>nonsense</tool_call>", "<tool_call>nonsense</tool_call>", []),
        ("just text", "just text", []),
        ("[" * 10_000, "[" * 10_000, []),
    ],
)
def test_parse(text: str, rest: str, names: list[str]) -> None:
    said, calls = parse_tools(text, TOOLS)
    assert said == rest
    assert [call.name for call in calls] == names
    assert len({call.id for call in calls}) == len(calls)


def test_arguments_are_json_text() -> None:
    _, (call,) = parse_tools('{"name": "move", "parameters": {"x": "é"}}', TOOLS)
    assert call.arguments == '{"x": "é"}'


def test_what_the_model_is_told() -> None:
    assert '"move"' in tool_prompt(TOOLS)
    assert tool_schemas(TOOLS)[0]["function"]["parameters"] == {"type": "object"}
