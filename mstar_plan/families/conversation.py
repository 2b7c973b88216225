"""A conversation's walk: it hears, a language model writes, and it speaks while the model still writes.

    converse: hearing -> (words?) -> ask -> parallel: writing  ==deltas==>  gather -> (a clause?) -> say
                      -> (none)   -> keep_quiet

The language model may be any whose walk writes "deltas" (a tuple of TextDelta) again and again in a loop, the last one
of an answer with a reason to `finish`. Deltas are gathered into clauses, and a clause is spoken as soon as it is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mstar_plan.errors import ComponentError, WalkError
from mstar_plan.families.abilities import ChatMessage, TextDelta, TextOptions
from mstar_plan.models.speech.clauses import Pending, take_clauses
from mstar_plan.models.speech.hearing import TRANSCRIBE
from mstar_plan.models.speech.speaker import Speaker
from mstar_plan.models.speech.speaking import Run, runs_of, say_walk
from mstar_plan.walks.batch import Batch
from mstar_plan.walks.component import Batching, Component, FunctionComponent, Outputs
from mstar_plan.walks.graph import Graph, prefixed
from mstar_plan.walks.step import Branch, Collect, Loop, Node, Parallel, Sequential, Step
from mstar_plan.walks.stream import Stream
from mstar_plan.walks.walk import Walk

Begin = Callable[[Sequence[ChatMessage], TextOptions], Mapping[str, Any]]
CONVERSE = "converse"
DELTAS = "deltas"
HEARING, LANGUAGE, SPEAKING, TALK = "hearing", "language", "speaking", "talk"
INPUTS = ("microphone", "language", "prompt", "dialogue", "voice", "speed", "seed")
MANNERS = "You are a voice assistant. Answer in one or two short sentences of plain spoken English."


@dataclass(frozen=True)
class AsItComes:
    """Chunks of all that has been written since the last one: so that the voice does not fall behind a fast writer.

    How many items a chunk has is up to chance, so this is for readers to whom that makes no difference.
    """

    def next_chunk(self, emitted: int, available: int, closed: bool) -> tuple[int, int, int] | None:
        """See `ChunkPolicy`."""
        del closed
        return (emitted, available, available - emitted) if available > emitted else None


@dataclass(frozen=True, eq=False)
class Dialogue:
    """What was said before, and how to answer.

    Attributes:
        messages: Of the conversation so far; what is heard now comes after them.
        options: How to write.
    """

    messages: tuple[ChatMessage, ...]
    options: TextOptions

    def with_user(self, transcript: str) -> tuple[ChatMessage, ...]:
        """The messages with what was heard; before them `MANNERS`, where they hold no message of the system."""
        asked = (*self.messages, ChatMessage("user", transcript))
        told = any(message.role == "system" for message in self.messages)
        return asked if told else (ChatMessage("system", MANNERS), *asked)


def assistant_graph(
    name: str,
    *,
    hearing: Graph,
    language: Graph,
    generate: Walk,
    ask: Component,
    speaking: Graph,
    speaker: Speaker,
    silent: Mapping[str, Any],
) -> Graph:
    """One graph of three: the walks of each under their own names, and the walk "converse".

    Args:
        name: Of the graph.
        hearing: Has the walk "transcribe".
        language: The language model.
        generate: Its walk that writes "deltas".
        ask: Makes the inputs of `generate`, by name, of ports "transcript" (str) and "dialogue" (`Dialogue`).
        speaking: Has the components of a speaker.
        speaker: That speaker.
        silent: What each output of `generate` is where nothing was said.

    Raises:
        WalkError: `generate` writes no deltas in a loop, or `silent` has other names than its outputs.
    """
    if set(silent) != set(generate.outputs):
        raise WalkError(
            f"silent has {sorted(silent)}, but walk {generate.name!r} gives {sorted(generate.outputs)}; give each"
        )
    talk = Graph(TALK, {"ask": ask, **_talk_components(speaker, generate.outputs, silent)}, {})
    parts = {HEARING: hearing, LANGUAGE: language, SPEAKING: speaking, TALK: talk}
    walks = [
        Walk(walk.name, prefixed(walk, prefix).step, walk.inputs, walk.outputs)
        for prefix, part in parts.items()
        for walk in part.walks.values()
    ]
    walks.append(converse_walk(hearing.walk(TRANSCRIBE), generate))
    return Graph.compose(name, parts, {walk.name: walk for walk in walks})


def converse_walk(transcribe: Walk, generate: Walk) -> Walk:
    """From "microphone", audio [1, n] at 16 kHz, to "speech" [1, n].

    Emits each "segment" that is heard, the "transcript", "deltas" and "audio"; outputs "transcript", "segments",
    "speech" and the outputs of `generate`.
    """
    wires = ("language", "prompt", "segment", "segments", "transcript")
    heard = {"audio": "microphone", **{wire: wire for wire in wires}}
    hear = prefixed(transcribe, HEARING).inline(HEARING, heard)
    asked = {port: f"{LANGUAGE}.{port}" for port in generate.inputs}
    ask = Node("ask", {"transcript": "transcript", "dialogue": "dialogue"}, asked, f"{TALK}.ask")
    shared = {wire: wire for wire in (DELTAS, *generate.outputs)}
    write = prefixed(generate, LANGUAGE).inline(LANGUAGE, shared)
    answer = Parallel((write, _speak()), (Stream(DELTAS, "written", AsItComes()),))
    quiet = {wire: wire for wire in (*generate.outputs, "speech")}
    keep_quiet = Node("keep_quiet", {"transcript": "transcript"}, quiet, f"{TALK}.keep_quiet")
    consider = Node("consider", ("transcript",), ("said", "blank"), f"{TALK}.consider")
    step = Sequential((hear, consider, Branch("said", {"true": Sequential((ask, answer)), "false": keep_quiet})))
    return Walk(CONVERSE, step, INPUTS, ("transcript", "segments", *generate.outputs, "speech"))


def _speak() -> Step:
    """From the stream of deltas to "audio" piece by piece, and all of it as "speech"."""
    wires = {name: name for name in ("runs", "count", "voice", "speed", "seed", "audio")}
    say = prefixed(say_walk(), SPEAKING).inline("say", {**wires, "said": "spoken"})
    gather = Node("gather", ("written", "pending", "voice"), ("runs", "count", "some", "pending"), f"{TALK}.gather")
    wait = Node("wait", ("runs",), ("spoken",), f"{TALK}.wait")
    speaking = Loop(
        Sequential((gather, Branch("some", {"true": say, "false": wait}))),
        stream="written",
        carry={"pending": "blank"},
        collect={"spoken": Collect("all_spoken", concat=True)},
        name="speaking",
    )
    finish = Node("finish", ("all_spoken", "pending"), ("speech",), f"{TALK}.finish")
    return Sequential((speaking, finish))


class AskChat:
    """Component "ask" over a function that makes a walk's inputs of messages and options.

    It runs in a worker's thread: the function must not wait there for a place in a pool, since those who would give one
    back wait for that thread.

    Args:
        begin: The function; raises OverloadedError where there is no room now.
        outputs: Names of the inputs that it makes.
    """

    inputs = ("transcript", "dialogue")
    batching = Batching.ALONE

    def __init__(self, begin: Begin, outputs: tuple[str, ...]) -> None:
        self._begin, self.outputs = begin, outputs

    def __call__(self, batch: Batch) -> Outputs:
        """Asks for the answer to one transcript."""
        dialogue: Dialogue = batch["dialogue"]
        return dict(self._begin(dialogue.with_user(batch["transcript"]), dialogue.options))


def _talk_components(speaker: Speaker, names: tuple[str, ...], silent: Mapping[str, Any]) -> dict[str, Component]:
    nothing = torch.zeros(1, 0)

    def gather(
        written: tuple[tuple[TextDelta, ...], ...], pending: Pending, voice: str
    ) -> tuple[tuple[Run, ...], int, bool, Pending]:
        deltas = [delta for step in written for delta in step if delta.index == 0]
        ended = any(delta.finish is not None for delta in deltas)
        clauses, left = take_clauses(pending, "".join(delta.text for delta in deltas), ended=ended)
        runs = runs_of(speaker, clauses, speaker.voice(voice))
        return runs, len(runs), bool(runs), left

    def finish(all_spoken: Tensor, pending: Pending) -> Tensor:
        if pending.text.strip():
            raise ComponentError(f"the language model ended without a reason to finish, so {pending.text!r} is unsaid")
        return all_spoken

    def keep_quiet(transcript: str) -> tuple[Any, ...]:
        return (*(silent[name] for name in names), nothing)

    alone = Batching.ALONE
    return {
        "consider": FunctionComponent(
            lambda transcript: (bool(transcript.strip()), Pending()), ("transcript",), ("said", "blank"), alone
        ),
        "gather": FunctionComponent(
            gather, ("written", "pending", "voice"), ("runs", "count", "some", "pending"), alone
        ),
        "wait": FunctionComponent(lambda runs: nothing, ("runs",), ("spoken",), alone),
        "finish": FunctionComponent(finish, ("all_spoken", "pending"), ("speech",), alone),
        "keep_quiet": FunctionComponent(keep_quiet, ("transcript",), (*names, "speech"), alone),
    }
