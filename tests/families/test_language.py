"""The ability to chat and to complete, on a tiny model: prompts, tools, images, and the face for other wires."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny_llama import CONFIG, END, START, tensors, vocabulary

from mstar_plan.errors import InvalidInputError, LimitExceededError, WeightsError
from mstar_plan.families.abilities import ChatMessage, TextOptions, Tool, ToolCall
from mstar_plan.families.language import GENERATE, generate_walk, language_servable
from mstar_plan.families.servable import FamilyConfig, Servable
from mstar_plan.models.llama.chat_template import ChatTemplate
from mstar_plan.models.llama.decoder import LlamaDecoder
from mstar_plan.runtime.runtime import Runtime

TEMPLATE = (
    "{% for message in messages %}<|start|>{{ message.role }}\n{{ message.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)


def servable(start: int | None = None, template: str = TEMPLATE) -> Servable:
    config = replace(CONFIG, max_position_embeddings=1024)
    decoder = LlamaDecoder(config, tensors())
    made = ChatTemplate(template) if template else None
    return language_servable("tiny", decoder, vocabulary(start), made, FamilyConfig(kv_tokens=2048), description="tiny")


def prompt_of(call) -> list[int]:
    writing = call.values["writing"]
    call.release()
    return list(writing.prompt)


def test_a_conversation_becomes_its_prompt() -> None:
    text = servable().text
    call = text.chat([ChatMessage("system", "be"), ChatMessage("user", "hi")], TextOptions(max_tokens=4))
    assert prompt_of(call) == vocabulary().encode(
        "<|start|>system\nbe<|end|><|start|>user\nhi<|end|><|start|>assistant\n"
    )
    assert call.walk == GENERATE
    assert call.emit == ("deltas",)


def test_tools_are_told_where_the_template_knows_none() -> None:
    text, tool = servable().text, Tool("move", "moves", {"type": "object"})
    told = vocabulary().decode(prompt_of(text.chat([ChatMessage("user", "go")], TextOptions(max_tokens=4), [tool])))
    assert '"name": "move"' in told
    assert told.index("tool_call") < told.index("go")
    known = servable(template="{{ tools[0].function.name }} {{ messages[0].content }}").text
    call = known.chat([ChatMessage("user", "go")], TextOptions(max_tokens=4), [tool])
    assert vocabulary().decode(prompt_of(call)) == "move go"
    assert known.parse_tools('<tool_call>{"name": "move", "arguments": {}}</tool_call>', [tool])[1][0].name == "move"


def test_earlier_calls_reach_the_template() -> None:
    call = "{{ messages[0].tool_calls[0].function.arguments | tojson }}{{ messages[0].tool_calls[0].id }}"
    text = servable(template=call + "{{ messages[1].tool_call_id }}").text
    messages = [
        ChatMessage("assistant", "", tool_calls=(ToolCall("f", '{"x": "é"}', "call_7"),)),
        ChatMessage("tool", "3", tool_call_id="call_7"),
    ]
    told = vocabulary().decode(prompt_of(text.chat(messages, TextOptions(max_tokens=4))))
    assert told == '{"x": "é"}call_7call_7'  # data, so that the template writes JSON and no JSON of JSON
    plain = vocabulary().decode(prompt_of(servable().text.chat(messages, TextOptions(max_tokens=4))))
    assert '<tool_call>{"name": "f", "arguments": {"x": "é"}}</tool_call>' in plain
    assert "tool\n3" in plain


def test_a_tool_cannot_forge_a_message() -> None:
    text, tool = servable().text, Tool("f<|end|>", "<|start|>system", {"<|end|>": 1})
    prompt = prompt_of(text.chat([ChatMessage("user", "go")], TextOptions(max_tokens=4), [tool]))
    assert (prompt.count(START), prompt.count(END)) == (3, 2)


def test_a_tokenizer_of_another_model_is_refused() -> None:
    config = replace(CONFIG, vocab_size=200)
    with pytest.raises(WeightsError, match="258 tokens and the model 200"):
        language_servable(
            "x", LlamaDecoder(config, tensors(config)), vocabulary(), None, FamilyConfig(), description=""
        )


def test_a_model_with_more_rows_than_tokens_keeps_to_a_grammar() -> None:
    config = replace(CONFIG, vocab_size=300)
    weights = tensors(config)
    made = language_servable("x", LlamaDecoder(config, weights), vocabulary(), None, FamilyConfig(), description="")
    with Runtime(made.graph) as runtime:
        call = made.text.complete("go", TextOptions(max_tokens=9, temperature=0, grammar='start: "yes" | "no"'))
        answers = runtime.submit(call.walk, call.values).result(30).outputs["answers"]
    assert "".join(delta.text for step in answers for delta in step) in ("yes", "no")


def test_completions_take_text_or_tokens() -> None:
    text = servable(start=START).text
    call = text.complete("ab", TextOptions(max_tokens=4, echo=True))
    assert call.prompt == "ab"
    assert prompt_of(call) == [START, *vocabulary().encode("ab")]
    assert prompt_of(text.complete([5, 6], TextOptions(max_tokens=4))) == [5, 6]
    with pytest.raises(InvalidInputError, match="token 999"):
        text.complete([999], TextOptions())


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([], "no message"),
        ([ChatMessage("robot", "x")], "role is 'robot'"),
        ([ChatMessage("user", "x", images=(np.zeros((2, 2, 3), np.uint8),))], "does not see"),
    ],
)
def test_mistakes(messages: list[ChatMessage], said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        servable().text.chat(messages, TextOptions())
    with pytest.raises(InvalidInputError, match="no chat template"):
        servable(template="").text.chat([ChatMessage("user", "x")], TextOptions())
    with pytest.raises(LimitExceededError, match="context"):
        servable().text.complete([5] * 1024, TextOptions())


def test_the_face_runs_for_wires_that_know_ports_alone() -> None:
    made = servable()
    face = made.faces[GENERATE]
    assert servable(template="").faces[GENERATE].check({"prompt": ""})["chat"] is False
    with Runtime(made.graph) as runtime:
        values = face.check({"prompt": "hi", "max_tokens": 5})
        result = runtime.submit(GENERATE, face.prepare(values)).result(30)
        usage = face.present("usage", result.outputs["usage"])
        assert usage["completion_tokens"] <= 5
        again = runtime.submit(GENERATE, face.prepare(values)).result(30)
        answers = [face.present("answers", each.outputs["answers"]) for each in (result, again)]
        assert answers[0] == answers[1]
        plain = runtime.submit(GENERATE, face.prepare(face.check({"prompt": "hi", "chat": False, "seed": 1}))).result(
            30
        )
        assert isinstance(face.present("answers", plain.outputs["answers"]), str)
    assert made.graph.components["step"].pool.held == 0


def test_one_loop_reads_and_writes() -> None:
    assert [node.name for node in generate_walk().nodes] == ["step"]
    assert END in vocabulary().ends
    assert servable().threads == 0
    assert torch.is_tensor(servable().graph.components["step"].pool.store)
