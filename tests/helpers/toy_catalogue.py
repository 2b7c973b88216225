"""Toy families for the commands: one that writes words, one that hums, one that acts; loaded by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mstar_plan.families.abilities import (
    ChatMessage,
    ObservationField,
    TextCall,
    TextDelta,
    TextOptions,
    TextUsage,
    Tool,
    ToolCall,
    WalkCall,
)
from mstar_plan.families.catalogue import Entry
from mstar_plan.families.servable import FamilyConfig, Servable
from mstar_plan.types import ActionSpec
from mstar_plan.walks.component import FunctionComponent
from mstar_plan.walks.graph import Graph
from mstar_plan.walks.step import Collect, Loop, Node
from mstar_plan.walks.walk import Walk

CATALOGUE = {
    "writer": Entry("toy_catalogue:load_writer", "Writes words."),
    "hummer": Entry("toy_catalogue:load_hummer", "Hums."),
    "actor": Entry("toy_catalogue:load_actor", "Acts."),
}
closed: list[str] = []  # families that have been closed


class Words:
    context_tokens, sees, tool_starts = 100, False, ("{",)

    def chat(self, messages: Sequence[ChatMessage], options: TextOptions, tools: Sequence[Tool] = ()) -> TextCall:
        said = [f"{message.role}:{message.content}" for message in messages]
        words = tuple(" | ".join(said).split(" ")[: options.max_tokens])
        return TextCall("generate", {"words": words, "count": len(words)}, ("deltas",))

    def complete(self, prompt: str | Sequence[int], options: TextOptions) -> TextCall:
        return self.chat([ChatMessage("user", str(prompt))], options)

    def parse_tools(self, text: str, tools: Sequence[Tool]) -> tuple[str, tuple[ToolCall, ...]]:
        return text, ()


def load_writer(name: str, config: FamilyConfig) -> Servable:
    def write(words: tuple[str, ...], number: Tensor) -> tuple[tuple[TextDelta, ...], TextUsage]:
        at = int(number[0])
        return (TextDelta(0, words[at] + " ", (at,)),), TextUsage(1, 0, at + 1)

    loop = Loop(
        Node("write", ("words", "number"), ("deltas", "usage")),
        times="count", limit=1000, index="number", collect={"deltas": "answers"}, name="writing",
    )  # fmt: skip
    walk = Walk("generate", loop, ("words", "count"), ("answers", "usage"))
    component = FunctionComponent(write, ("words", "number"), ("deltas", "usage"))
    return Servable(
        name=name,
        graph=Graph(name, {"write": component}, {"generate": walk}),
        description=f"on {config.device} with {config.threads} threads",
        text=Words(),
        close=lambda: closed.append(name),
    )


class Hum:
    sample_rate, voices = 1000, ("low", "high")

    def speak(self, text: str, voice: str = "", speed: float = 1.0) -> WalkCall:
        level = {"": 0.25, "low": 0.25, "high": 0.5}[voice]
        return WalkCall("speak", {"level": level, "count": len(text)}, ("audio",))


def load_hummer(name: str, config: FamilyConfig) -> Servable:
    loop = Loop(
        Node("hum", ("level",), ("audio",)),
        times="count", limit=1000, collect={"audio": Collect("speech", concat=True)}, name="humming",
    )  # fmt: skip
    component = FunctionComponent(lambda level: torch.full((1, 10), level), ("level",), ("audio",))
    graph = Graph(name, {"hum": component}, {"speak": Walk("speak", loop, ("level", "count"), ("speech",))})
    return Servable(name=name, graph=graph, speech=Hum())


class Act:
    fields = (
        ObservationField("observation/image", "image", (None, None, 3)),
        ObservationField("observation/state", "state", (2,)),
        ObservationField("prompt", "text", required=False),
    )
    action = ActionSpec(low=-np.ones(2, np.float32), high=np.ones(2, np.float32), dt_s=0.1, names=("x", "y"))
    chunk = 3

    def act(
        self, observation: Mapping[str, Any], *, seed: int | None = None, previous: Any = None, delay: int = 0
    ) -> WalkCall:
        light = float(observation["observation/image"].mean()) / 255
        state = torch.from_numpy(observation["observation/state"])[None]
        return WalkCall("act", {"state": state * light, "seed": seed})


def load_actor(name: str, config: FamilyConfig) -> Servable:
    component = FunctionComponent(
        lambda state, seed: state[:, None].repeat(1, 3, 1) + seed, ("state", "seed"), ("actions",)
    )
    walk = Walk("act", Node("act", ("state", "seed"), ("actions",)), ("state", "seed"), ("actions",))
    return Servable(name=name, graph=Graph(name, {"act": component}, {"act": walk}), action=Act())
