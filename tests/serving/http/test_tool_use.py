"""Tools: what may be shown before a call begins, names that are checked, schemas that stand inside another."""

from __future__ import annotations

import random
from typing import Any

import pytest

from mstar_plan.errors import InvalidInputError
from mstar_plan.families.abilities import Tool, ToolCall
from mstar_plan.serving.http.tool_use import Choice, Gate, call_schema, checked_tools


def shown(text: str, starts: tuple[str, ...] | None, seed: int) -> str:
    """What goes through the gate, in pieces of random lengths."""
    gate, chosen, out = Gate(starts), random.Random(seed), ""
    while text:
        length = chosen.randint(1, 4)
        out += gate.add(text[:length])
        text = text[length:]
    assert gate.shown == len(out)
    return out


@pytest.mark.parametrize("seed", range(20))
def test_text_goes_through_until_a_call_may_begin(seed: int) -> None:
    starts = ("<tool_call>", "[CALL]")
    assert shown("hello <b>you</b> <tool", (), seed) == "hello <b>you</b> <tool"
    assert shown("hello <b>you</b> x", starts, seed) == "hello <b>you</b> x"
    assert shown("so <tool_call>{}</tool_call> and", starts, seed) == "so "
    assert shown("so <<tool_call>{}", starts, seed) == "so <"
    assert shown("so [CALL]{}", starts, seed) == "so "
    assert shown("so <tool_ca", starts, seed) == "so "
    assert shown("anything", None, seed) == ""


def test_a_call_of_one_or_of_several() -> None:
    one = call_schema([Tool("f", "", {"type": "object", "properties": {"x": {"type": "number"}}})])
    assert one["properties"]["name"] == {"const": "f"}
    assert one["required"] == ["name", "arguments"]
    several = call_schema([Tool("f"), Tool("g")])
    assert [each["properties"]["name"]["const"] for each in several["anyOf"]] == ["f", "g"]
    assert several["anyOf"][0]["properties"]["arguments"] == {"type": "object"}


def test_definitions_of_different_functions_stay_apart() -> None:
    def tool(name: str, kind: str) -> Tool:
        inner = {"items": {"$ref": "#/$defs/n"}, "type": "array"}
        return Tool(name, "", {"type": "object", "properties": {"x": inner}, "$defs": {"n": {"type": kind}}})

    schema = call_schema([tool("f", "integer"), tool("g", "string")])
    assert schema["$defs"] == {"0_n": {"type": "integer"}, "1_n": {"type": "string"}}
    ref = schema["anyOf"][1]["properties"]["arguments"]["properties"]["x"]["items"]["$ref"]
    assert ref == "#/$defs/1_n"
    with pytest.raises(InvalidInputError, match="no schemas"):
        call_schema([Tool("f", "", {"$defs": 5})])


@pytest.mark.parametrize(
    ("names", "how", "named", "field"),
    [
        (["a b"], "auto", "", "tools"),
        (["a", "a"], "auto", "", "tools"),
        (["x" * 65], "auto", "", "tools"),
        ([""], "auto", "", "tools"),
        ([], "required", "", "tool_choice"),
        (["a"], "named", "b", "tool_choice"),
        (["a", "b", "c"], "auto", "", "tools"),
    ],
)
def test_choices_that_are_none(names: list[str], how: str, named: str, field: str) -> None:
    with pytest.raises(Exception, match=r"tool|function") as found:
        checked_tools([Tool(name) for name in names], how, named, 2, one=False)
    assert getattr(found.value, "field", "") == field


class Parser:
    def parse_tools(self, text: str, tools: Any) -> Any:
        return text, (ToolCall("a", "{}"), ToolCall("b", "{}"))


def test_one_call_if_no_more_are_wanted() -> None:
    tools = (Tool("a"), Tool("b"))
    _, calls = Choice(tools, None, one=True).split(Parser(), "x")
    assert [call.name for call in calls] == ["a"]
    _, calls = Choice(tools).split(Parser(), "x")
    assert len({call.id for call in calls}) == 2
    assert Choice().split(Parser(), "x") == ("x", ())
