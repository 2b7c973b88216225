"""Calls of functions in an answer: tagged, or all of it; what is no call of a known function stays text."""

from __future__ import annotations

import time
from typing import Any

import pytest

from mstar_plan.families.abilities import Tool, ToolCall
from mstar_plan.families.tools import parse_tools, plain_arguments, tool_prompt, tool_schemas, written_calls

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
        ('{"name": ["move"]}', '{"name": ["move"]}', []),
        ('{"name": {"move": 1}}', '{"name": {"move": 1}}', []),
        ('["move"]', '["move"]', []),
        ('<tool_call>\n{"name": "move"}\n</tool_call>\n', "", ["move"]),
        ('<tool_call>{"name": "move"}</tool_call> and <tool_call>no', "and <tool_call>no", ["move"]),
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


def test_much_white_space_takes_no_time() -> None:
    text = ("<tool_call>" + " " * 20_000 + "x") * 3
    began = time.perf_counter()
    assert parse_tools(text, TOOLS) == (text, ())
    assert time.perf_counter() - began < 1


def test_calls_are_written_as_they_are_read() -> None:
    calls = (ToolCall("move", '{"x": "é"}', "call_0"), ToolCall("stop", "{}", "call_1"))
    said, read = parse_tools(written_calls(calls), TOOLS)
    assert said == ""
    assert [vars(call) for call in read] == [vars(call) for call in calls]


@pytest.mark.parametrize(("arguments", "plain"), [('{"x": 1}', {"x": 1}), ("[1]", "[1]"), ("{", "{"), ("", "")])
def test_arguments_as_data(arguments: str, plain: Any) -> None:
    assert plain_arguments(ToolCall("f", arguments)) == plain


def test_what_the_model_is_told() -> None:
    assert '"move"' in tool_prompt(TOOLS)
    assert tool_schemas(TOOLS)[0]["function"]["parameters"] == {"type": "object"}
