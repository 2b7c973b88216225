"""The walk that speaks: a text's clauses one after the other, and each clause piece by piece.

    speak: split -> for each clause: imagine -> for each piece: render

`imagine` runs the network over one clause (a twentieth of the time that the clause takes to say, or less), `render`
makes 0.4 s of samples of it. So the first piece is there when one clause has been imagined, and between two pieces
others may have their turn, or the request may be taken back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mstar_plan.errors import ComponentError, InvalidInputError
from mstar_plan.models.speech.clauses import Clause, split_clauses
from mstar_plan.models.speech.speaker import Speaker
from mstar_plan.models.speech.vocoder import Frames
from mstar_plan.walks.component import Batching, Component, FunctionComponent
from mstar_plan.walks.graph import Graph
from mstar_plan.walks.step import Collect, Loop, Node, Sequential
from mstar_plan.walks.walk import Walk

SPEAK, SAY = "speak", "say"
MAX_RUNS = 4096  # of the network for one text
MAX_PIECES = 9600  # of one clause
LOWEST_SPEED, HIGHEST_SPEED = 0.5, 2.0
_SEEDS = 2**63


@dataclass(frozen=True)
class Run:
    """Phonemes that the network reads at once, and their number in the text, from 0: it decides their noise."""

    number: int
    phonemes: str


def runs_of(speaker: Speaker, clauses: tuple[Clause, ...], voice: str) -> tuple[Run, ...]:
    """What is to be spoken of clauses; less than there are where some have no sound."""
    found: list[Run] = []
    for clause in clauses:
        runs = speaker.phonemes(clause.text, voice)
        found += [Run(clause.number * MAX_RUNS + place, phonemes) for place, phonemes in enumerate(runs)]
    return tuple(found)


def say_walk() -> Walk:
    """Speaks `count` runs of phonemes; emits "audio" [1, n], and gives all of it as "said" [1, n]."""
    pieces = Loop(
        Node("render", ("frames", "piece"), ("audio",)),
        times="pieces",
        index="piece",
        limit=MAX_PIECES,
        collect={"audio": Collect("clause", concat=True)},
        name="pieces",
    )
    imagine = Node("imagine", ("left", "voice", "speed", "seed"), ("frames", "pieces", "left"))
    clauses = Loop(
        Sequential((imagine, pieces)),
        times="count",
        carry={"left": "runs"},
        limit=MAX_RUNS,
        collect={"clause": Collect("said", concat=True)},
        name="clauses",
    )
    return Walk(SAY, clauses, ("runs", "count", "voice", "speed", "seed"), ("said",))


def speak_walk() -> Walk:
    """Speaks a text; emits "audio" [1, n] float32 in [-1, 1], and gives all of it as "speech" [1, n]."""
    wires = {name: name for name in ("runs", "count", "voice", "speed", "seed", "audio")}
    say = say_walk().inline(SAY, {**wires, "said": "speech"})
    split = Node("split", ("text", "voice"), ("runs", "count"))
    return Walk(SPEAK, Sequential((split, say)), ("text", "voice", "speed", "seed"), ("speech",))


def speaking_components(speaker: Speaker) -> dict[str, Component]:
    """The components of the walks here."""

    def split(text: str, voice: str) -> tuple[tuple[Run, ...], int]:
        runs = runs_of(speaker, split_clauses(text), speaker.voice(voice))
        if not runs:
            raise InvalidInputError("there is nothing to say in the text; send words", field="text")
        return runs, len(runs)

    def imagine(left: tuple[Run, ...], voice: str, speed: float, seed: int) -> tuple[Frames, int, tuple[Run, ...]]:
        run, *others = left
        noise = (seed + run.number) % _SEEDS
        frames = speaker.frames(run.phonemes, speaker.voice(voice), checked_speed(speed), noise)
        return frames, speaker.pieces(frames), tuple(others)

    def render(frames: Frames, piece: Tensor) -> Tensor:
        return torch.from_numpy(speaker.piece(frames, one(piece)))[None]

    alone = Batching.ALONE  # the network takes one clause, and a piece takes a millisecond
    return {
        "split": FunctionComponent(split, ("text", "voice"), ("runs", "count"), alone),
        "imagine": FunctionComponent(imagine, ("left", "voice", "speed", "seed"), ("frames", "pieces", "left"), alone),
        "render": FunctionComponent(render, ("frames", "piece"), ("audio",), alone),
    }


def speaking_graph(name: str, speaker: Speaker) -> Graph:
    """A speaker and its walk."""
    return Graph(name, speaking_components(speaker), {SPEAK: speak_walk()})


def checked_speed(speed: float) -> float:
    """Returns the speed.

    Raises:
        InvalidInputError: It is out of bounds.
    """
    if not LOWEST_SPEED <= speed <= HIGHEST_SPEED:
        raise InvalidInputError(
            f"speed is {speed}; it needs {LOWEST_SPEED:g} to {HIGHEST_SPEED:g}, 1 is natural", field="speed"
        )
    return float(speed)


def one(value: Any) -> int:
    """The number that a loop's index holds.

    Raises:
        ComponentError: The request has several rows.
    """
    if len(value) != 1:
        raise ComponentError(f"speech is made for one row at a time, but the request has {len(value)}")
    return int(value[0])
