"""Scripted models with every ability, for tests of the wires: what they answer is known beforehand."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mstar_plan.errors import InvalidInputError, OverloadedError
from mstar_plan.families.abilities import (
    ChatMessage,
    ObservationField,
    Segment,
    TextCall,
    TextDelta,
    TextOptions,
    TextUsage,
    TokenLogprob,
    Tool,
    ToolCall,
    WalkCall,
)
from mstar_plan.families.face import Port, WalkFace
from mstar_plan.families.servable import Servable
from mstar_plan.runtime.runtime import Runtime
from mstar_plan.serving.http.config import HttpConfig, HttpLimits
from mstar_plan.serving.http.server import HttpServer
from mstar_plan.types import ActionSpec
from mstar_plan.walks.component import Batching, FunctionComponent
from mstar_plan.walks.graph import Graph
from mstar_plan.walks.step import Collect, Loop, Node, Sequential
from mstar_plan.walks.walk import Walk

RATE = 16000
PIECE = 4000  # samples of one spoken word


@dataclass(eq=False)
class Log:
    """What the models have been asked, and how often their components have run."""

    calls: int = 0
    order: list[str] = field(default_factory=list)  # who has run, step by step
    asked: list[Any] = field(default_factory=list)
    released: int = 0
    taken: int = 0
    gate: threading.Event = field(default_factory=threading.Event)  # what "wait" in a prompt waits for


@dataclass(eq=False)
class Place:
    """A place in a pool that must be given back."""

    log: Log

    def release(self) -> None:
        self.log.released += 1


@dataclass(frozen=True)
class Script:
    """What a model will write, step by step; `pace_s` each; the step `fails` raises."""

    steps: tuple[tuple[TextDelta, ...], ...]
    prompt_tokens: int
    pace_s: float = 0.0
    fails: int = -1


def script_of(texts: Sequence[Sequence[str]], prompt: str, options: TextOptions) -> Script:
    """A script of several answers, a word a step."""
    steps, longest = [], max(len(words) for words in texts)
    for at in range(longest):
        deltas = []
        for index, words in enumerate(texts):
            if at >= len(words):
                continue
            most = options.max_tokens or len(words)
            if at >= most:
                continue
            last = at == min(len(words), most) - 1
            finish = None if not last else "stop" if at == len(words) - 1 else "length"
            logprobs: tuple[TokenLogprob, ...] = ()
            if options.logprobs is not None:
                top = ((words[at], at, -0.5), ("é", 7, -2.0), ("never", 8, -float("inf")))
                logprobs = (TokenLogprob(words[at], at, -0.5, top[: options.logprobs]),)
            deltas.append(TextDelta(index, words[at], (at,), logprobs, finish))
        if deltas:
            steps.append(tuple(deltas))
    pace = re.search(r"pace=([\d.]+)", prompt)
    fails = re.search(r"fail=(\d+)", prompt)
    return Script(tuple(steps), len(prompt.split()), float(pace[1]) if pace else 0.0, int(fails[1]) if fails else -1)


class Scribe:
    """Answers with the words of the last message, and obeys a few words in it (see `_answer`)."""

    context_tokens = 1000
    sees = True
    tool_starts = ("<tool_call>",)

    def __init__(self, log: Log) -> None:
        self.log = log

    def chat(self, messages: Sequence[ChatMessage], options: TextOptions, tools: Sequence[Tool] = ()) -> TextCall:
        self.log.asked.append((tuple(messages), options, tuple(tools)))
        return self._call(messages[-1].content, options, tools)

    def complete(self, prompt: str | Sequence[int], options: TextOptions) -> TextCall:
        self.log.asked.append((prompt, options))
        text = prompt if isinstance(prompt, str) else " ".join(str(token) for token in prompt)
        return self._call(text, options, ())

    def parse_tools(self, text: str, tools: Sequence[Tool]) -> tuple[str, tuple[ToolCall, ...]]:
        names, calls = {tool.name for tool in tools}, []
        for found in re.findall(r"<tool_call>(.*?)</tool_call>", text) or ([text] if text.startswith("{") else []):
            call = json.loads(found)
            if call.get("name") in names:
                calls.append(ToolCall(call["name"], json.dumps(call["arguments"])))
        return (
            (re.sub(r"<tool_call>.*?</tool_call>", "", text).strip() if "<tool" in text else "", tuple(calls))
            if (calls)
            else (text, ())
        )

    def _call(self, prompt: str, options: TextOptions, tools: Sequence[Tool]) -> TextCall:
        if "full" in prompt.split():
            raise OverloadedError("there is no room", retry_after_s=2.5)
        if "break" in prompt.split():
            raise RuntimeError("a secret of the server")
        if "wait" in prompt.split():
            self.log.gate.wait(10)
        texts = [self._answer(prompt, options, tools, index) for index in range(options.n)]
        script = script_of(texts, prompt, options)
        self.log.taken += 1
        values = {"script": script, "most": len(script.steps), "place": Place(self.log)}
        return TextCall("write", values, ("deltas",), prompt=prompt)

    def _answer(self, prompt: str, options: TextOptions, tools: Sequence[Tool], index: int) -> list[str]:
        called = re.search(r"use (\w+)", prompt)
        if options.json_schema is not None:
            properties = options.json_schema.get("properties", {})
            if "name" in properties and "const" in properties["name"]:
                return [f'{{"name": "{properties["name"]["const"]}", ', '"arguments": {"x": 1}}']
            return ['{"ok":', " true}"]
        if called and tools:
            return ["Sure. ", "<tool", f'_call>{{"name": "{called[1]}", ', '"arguments": {"x": 1}}</tool_call>']
        words = re.findall(r"\S+\s*", prompt) or [""]
        return words if index == 0 else [f"{index}:{word}" for word in words]


def scribe(log: Log) -> Servable:
    """A model that writes."""

    def write(script: Script, place: Place, i: Tensor) -> tuple[tuple[TextDelta, ...], bool]:
        at = int(i[0])
        log.calls += 1
        log.order.append("write")
        time.sleep(script.pace_s)
        if at == script.fails:
            raise ValueError("a bug of the model")
        return script.steps[at], at == len(script.steps) - 1

    def count(script: Script) -> TextUsage:
        written = sum(len(delta.tokens) for step in script.steps for delta in step)
        return TextUsage(script.prompt_tokens, 1, written)

    writing = Loop(
        Node("write", ("script", "place", "i"), ("deltas", "done")),
        times="most",
        until="done",
        index="i",
        collect={"deltas": "answers"},
        name="writing",
    )
    step = Sequential((writing, Node("count", ("script",), ("usage",))))
    walk = Walk("write", step, ("script", "most", "place"), ("answers", "usage"))
    components = {
        "write": FunctionComponent(write, ("script", "place", "i"), ("deltas", "done"), Batching.ALONE),
        "count": FunctionComponent(count, ("script",), ("usage",)),
    }
    ability = Scribe(log)
    return Servable("scribe", Graph("scribe", components, {"write": walk}), text=ability, description="Repeats.")


class Speaker:
    """Speaks a tone for each word; "loud" is 2.0."""

    sample_rate = RATE
    voices = ("low", "high")

    def speak(self, text: str, voice: str = "", speed: float = 1.0) -> WalkCall:
        words = tuple(text.split())
        height = 880.0 if voice == "high" else 220.0
        values = {"words": words, "height": height, "speed": float(speed), "most": len(words)}
        return WalkCall("speak", values, ("audio",))


def tone(height: float, speed: float) -> np.ndarray:
    """What one word sounds like: [n] float32."""
    at = np.arange(int(PIECE / speed)) / RATE
    return (0.5 * np.sin(2 * np.pi * height * at)).astype(np.float32)


def speaker(log: Log) -> Servable:
    """A model that speaks."""

    def say(words: tuple[str, ...], height: float, speed: float, i: Tensor) -> Tensor:
        log.calls += 1
        if words[int(i[0])] == "break":
            raise ValueError("a bug of the model")
        if words[int(i[0])].startswith("pace="):
            time.sleep(float(words[int(i[0])][5:]))
        return torch.from_numpy(tone(height, speed))[None]

    loop = Loop(
        Node("say", ("words", "height", "speed", "i"), ("audio",)),
        times="most",
        index="i",
        collect={"audio": Collect("speech", concat=True)},
        name="speaking",
    )
    walk = Walk("speak", loop, ("words", "height", "speed", "most"), ("speech",))
    parts = {"say": FunctionComponent(say, ("words", "height", "speed", "i"), ("audio",), Batching.ALONE)}
    return Servable("speaker", Graph("speaker", parts, {"speak": walk}), speech=Speaker())


class Listener:
    """Writes down how loud each half of a recording is."""

    sample_rate = RATE
    languages = ("en", "de")

    def __init__(self, log: Log) -> None:
        self.log = log

    def transcribe(self, audio: Any, language: str = "", prompt: str = "") -> WalkCall:
        self.log.asked.append((audio, language, prompt))
        return WalkCall("hear", {"audio": torch.from_numpy(np.ascontiguousarray(audio))[None]}, ("segment",))


def listener(log: Log) -> Servable:
    """A model that listens."""

    def hear(audio: Tensor, i: Tensor) -> Segment:
        at, half = int(i[0]), audio.shape[1] // 2
        part = audio[0, at * half : (at + 1) * half]
        text = f" <{'first' if at == 0 else 'second'}> half: {'loud' if float(part.abs().max()) > 0.1 else 'still'}"
        return Segment(at * half / RATE, (at + 1) * half / RATE, text)

    def put_together(segments: tuple[Segment, ...]) -> str:
        return "".join(each.text for each in segments).strip()

    step = Sequential(
        (
            Loop(
                Node("hear", ("audio", "i"), ("segment",)),
                times=2,
                index="i",
                collect={"segment": "segments"},
                name="hearing",
            ),
            Node("join", ("segments",), ("transcript",)),
        )
    )
    walk = Walk("hear", step, ("audio",), ("transcript", "segments"))
    parts = {
        "hear": FunctionComponent(hear, ("audio", "i"), ("segment",), Batching.ALONE),
        "join": FunctionComponent(put_together, ("segments",), ("transcript",)),
    }
    return Servable("listener", Graph("listener", parts, {"hear": walk}), transcription=Listener(log))


class Mapper:
    """Maps a text to its length and its number of words."""

    width = 2

    def embed(self, texts: Sequence[str]) -> WalkCall:
        sizes = torch.tensor([[len(text), len(text.split())] for text in texts])
        return WalkCall("embed", {"sizes": sizes})


def mapper() -> Servable:
    """A model that embeds."""

    def embed(sizes: Tensor) -> tuple[Tensor, Tensor]:
        return sizes.float() / 10, sizes[:, 1]

    walk = Walk("embed", Node("embed", ("sizes",), ("embeddings", "tokens")), ("sizes",), ("embeddings", "tokens"))
    parts = {"embed": FunctionComponent(embed, ("sizes",), ("embeddings", "tokens"))}
    return Servable("mapper", Graph("mapper", parts, {"embed": walk}), embedding=Mapper())


class Driver:
    """A policy whose actions are its state, plus the step, plus the mean of the picture."""

    chunk = 4
    action = ActionSpec(np.full(3, -500.0), np.full(3, 500.0), 0.05, ("x", "y", "grip"), ("m", "m", "1"))
    fields = (
        ObservationField("observation/image", "image", (8, 8, 3), description="what the camera sees"),
        ObservationField("observation/state", "state", (3,), names=("x", "y", "grip")),
        ObservationField("prompt", "text", required=False),
    )

    def __init__(self, log: Log) -> None:
        self.log = log

    def act(
        self,
        observation: Mapping[str, Any],
        *,
        seed: int | None = None,
        previous: Any = None,
        delay: int = 0,
    ) -> WalkCall:
        self.log.asked.append((dict(observation), seed, previous, delay))
        for key in observation:
            if key not in {each.key for each in self.fields}:
                raise InvalidInputError(f"there is no {key!r}", field=key)
        for each in self.fields[:2]:
            got = observation.get(each.key)
            if not isinstance(got, np.ndarray) or got.shape != each.shape:
                raise InvalidInputError(f"{each.key!r} is missing or of another shape", field=each.key)
        image, state = observation["observation/image"], observation["observation/state"]
        if not (image.flags.writeable and state.flags.writeable):
            raise InvalidInputError("the arrays cannot be written")
        if image.dtype != np.uint8:
            raise InvalidInputError(f"the image is {image.dtype}", field="observation/image")
        slow = "slow" in str(observation.get("prompt", ""))
        values = {
            "image": torch.from_numpy(image)[None],
            "state": torch.from_numpy(state)[None],
            "times": 200 if slow else 5,
        }
        return WalkCall("act", values)


def driver(log: Log) -> Servable:
    """A policy."""

    def see(image: Tensor) -> Tensor:
        return image.float().mean((1, 2, 3))

    def drive(state: Tensor, seen: Tensor) -> Tensor:
        log.calls += 1
        log.order.append("drive")
        time.sleep(0.005)
        return (state + seen[:, None])[:, None] + torch.arange(4.0)[None, :, None]

    step = Sequential(
        (
            Node("see", ("image",), ("seen",)),
            Loop(Node("drive", ("state", "seen"), ("actions",)), times="times", name="driving"),
        )
    )
    walk = Walk("act", step, ("image", "state", "times"), ("actions",))
    parts = {
        "see": FunctionComponent(see, ("image",), ("seen",)),
        "drive": FunctionComponent(drive, ("state", "seen"), ("actions",)),
    }
    return Servable("driver", Graph("driver", parts, {"act": walk}), action=Driver(log))


def doubler() -> Servable:
    """A model with a public walk: doubles numbers again and again."""
    loop = Loop(
        Node("double", ("y",), ("y",)),
        times="steps",
        limit=8,
        carry={"y": "x"},
        collect={"y": Collect("all", dim=1)},
        name="doubling",
    )
    walk = Walk("double", loop, ("x", "steps"), ("y", "all"))
    face = WalkFace(
        "double",
        inputs={
            "x": Port("tensor", "float32", (None, 2), "numbers", unit="m"),
            "steps": Port("integer", description="how often", default=2),
            "label": Port("text", description="comes back", default="", most=10),
            "extra": Port("json", description="anything", default={}),
        },
        outputs={
            "y": Port("tensor", "float32", (None, 2), "the last"),
            "all": Port("tensor", "float32", (None, None, 2)),
        },
        streams={"y": Port("tensor", "float32", (None, 2), "each")},
        description="Doubles.",
        prepare=lambda values: {"x": values["x"], "steps": values["steps"]},
    )
    parts = {"double": FunctionComponent(lambda y: 2 * y, ("y",), ("y",))}
    return Servable("doubler", Graph("doubler", parts, {"double": walk}), {"double": face}, "Doubles numbers.")


@dataclass(eq=False)
class World:
    """A server with all of them on one runtime."""

    server: HttpServer
    runtime: Runtime
    log: Log

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def port(self) -> int:
        return int(self.server.address.rpartition(":")[2])

    def settle(self, seconds: float = 5.0) -> None:
        """Waits until nothing runs any more, and nothing is held."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if not (self.server.house.running or self.runtime._open or self.server._bounded.under_way):
                return
            time.sleep(0.005)
        raise AssertionError("something still runs")


@contextmanager
def http_world(limits: HttpLimits | None = None, **options: Any) -> Iterator[World]:
    """Starts all of it, on a free port."""
    log = Log()
    made = (scribe(log), speaker(log), listener(log), mapper(), driver(log), doubler())
    servables = {each.name: each for each in made}
    config = HttpConfig(port=0, limits=limits or HttpLimits(), **{"grace_s": 2.0, **options})
    with Runtime({name: each.graph for name, each in servables.items()}) as runtime:
        server = HttpServer(servables, runtime, config)
        with server:
            try:
                yield World(server, runtime, log)
            finally:
                log.gate.set()
