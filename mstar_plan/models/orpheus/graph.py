"""The walk of a speaking language model: it writes tokens, and what it has written is spoken meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from mstar_plan.errors import ComponentError, WalkError
from mstar_plan.models.orpheus.tokens import Heard, OrpheusTokens, hear
from mstar_plan.models.snac.codec import Snac
from mstar_plan.models.snac.stream import FrameChunks, Frames, SnacState, SnacStep, SnacStream
from mstar_plan.walks.component import Batching, FunctionComponent
from mstar_plan.walks.graph import Graph, prefixed
from mstar_plan.walks.step import Branch, Collect, Loop, Node, Parallel, Sequential
from mstar_plan.walks.stream import FixedChunks, Stream
from mstar_plan.walks.walk import Walk

SPEAK = "speak"
LANGUAGE, SPEECH = "language", "speech"
DELTAS = "deltas"
OWN = {"audio", "speech", "frames_spoken", "noise_seed", "written", "heard", "whole", "frame", "frames", "sound",
       "silence", "stillness"}  # fmt: skip


class Delta(Protocol):
    """What one step of a language model added to one answer; a `TextDelta` is one."""

    @property
    def index(self) -> int:
        """Which answer; the first one is spoken."""
        ...

    @property
    def tokens(self) -> tuple[int, ...]:
        """Ids of the new tokens."""
        ...

    @property
    def finish(self) -> str | None:
        """Why the answer ended with this step; None while it goes on."""
        ...


@dataclass(frozen=True)
class SpeakConfig:
    """How a language model's tokens are spoken.

    Attributes:
        tokens: Which are codes.
        chunk_frames: Frames that the codec takes at a time, once it has begun; it begins with as many as it needs to
            be heard at all.
    """

    tokens: OrpheusTokens = field(default_factory=OrpheusTokens)
    chunk_frames: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.chunk_frames <= 1024:
            raise WalkError(f"chunk_frames is {self.chunk_frames}; it needs 1 to 1024", field="chunk_frames")


def orpheus_graph(name: str, language: Graph, generate: Walk, codec: Snac, config: SpeakConfig | None = None) -> Graph:
    """A graph of a language model's components and the codec's, with the walks of the first and "speak" over both.

    Args:
        name: Of the graph.
        language: The language model's.
        generate: A walk over its components; see `speak_walk`.
        codec: Speaks the codes.
        config: How.

    Raises:
        WeightsError: The codec has other books than the tokens are made for.
        WalkError: The walk does not fit.
    """
    config = config or SpeakConfig()
    config.tokens.fits(codec.config)
    stream = SnacStream(codec)
    speech = Graph(
        "speech",
        {
            "begin": FunctionComponent(
                lambda seed: (Heard(), stream.begin([seed])), ("noise_seed",), ("silence", "stillness"), Batching.ALONE
            ),
            "listen": FunctionComponent(
                partial(_listen, config.tokens), ("written", "heard"), ("heard", "whole"), Batching.ALONE
            ),
            "frame": FunctionComponent(
                lambda heard: Frames(heard.whole, heard.ended), ("heard",), ("frame",), Batching.ALONE
            ),
            "voice": SnacStep(stream),
            "settle": FunctionComponent(_settle, ("sound",), ("frames_spoken",), Batching.ALONE),
        },
        {},
    )
    walk = speak_walk(prefixed(generate, LANGUAGE), config.chunk_frames, codec.config.first_frames)
    return Graph.compose(name, {LANGUAGE: language, SPEECH: speech}, {SPEAK: walk})


def speak_walk(generate: Walk, chunk_frames: int, first_frames: int) -> Walk:
    """The walk over `generate`, whose inputs and outputs it passes on under their own names.

    Three loops run side by side: the language model writes "deltas"; every step of it is heard; and whenever a frame is
    whole it goes to the codec, whose "audio" [1, n] come one after the other and make the output "speech" [1, n].
    Further input: "noise_seed" (int, or None for no noise). Further output: "frames_spoken" (int).

    Args:
        generate: Writes the wire "deltas" in a loop: a tuple of `Delta` each time; the last one says `finish`.
        chunk_frames: Frames that the codec takes at a time, once it has begun.
        first_frames: Frames that it begins with.

    Raises:
        WalkError: `generate` writes no "deltas", or has a wire that is named like one of this walk's own.
    """
    wires = (*generate.inputs, *generate.outputs)
    taken = sorted(OWN & set(wires))
    if taken:
        raise WalkError(f"walk {generate.name!r} has a wire {taken[0]!r}, which speech uses; rename it", field=taken[0])
    writing = generate.inline(LANGUAGE, {name: name for name in (*wires, DELTAS)})
    heard = Stream(DELTAS, "written", FixedChunks(1))
    spoken = Stream("frame", "frames", FrameChunks(first_frames, chunk_frames))
    begin = _node("begin", ("noise_seed",), ("silence", "stillness"))
    settle = _node("settle", ("sound",), ("frames_spoken",))
    return Walk(
        SPEAK,
        Sequential((begin, Parallel((writing, _listening(), _voicing()), (heard, spoken)), settle)),
        (*generate.inputs, "noise_seed"),
        (*generate.outputs, "speech", "frames_spoken"),
    )


def _listening() -> Loop:
    """Takes every step of the language model; a frame is written only when one is whole, or the answer has ended."""
    frame = Branch("whole", {"true": _node("frame", ("heard",), ("frame",)), "false": Sequential()})
    listen = _node("listen", ("written", "heard"), ("heard", "whole"))
    return Loop(Sequential((listen, frame)), stream="written", carry={"heard": "silence"}, name="listening")


def _voicing() -> Loop:
    return Loop(
        _node("voice", ("frames", "sound"), ("audio", "sound")),
        stream="frames",
        carry={"sound": "stillness"},
        collect={"audio": Collect("speech", concat=True)},
        name="voicing",
    )


def _node(name: str, reads: tuple[str, ...], writes: tuple[str, ...]) -> Node:
    return Node(name, reads, writes, f"{SPEECH}.{name}")


def _listen(tokens: OrpheusTokens, written: Sequence[Sequence[Delta]], heard: Heard) -> tuple[Heard, bool]:
    deltas = [delta for step in written for delta in step if delta.index == 0]
    ended = any(delta.finish is not None for delta in deltas)
    heard = hear(heard, (token for delta in deltas for token in delta.tokens), ended, tokens)
    return heard, bool(heard.whole) or ended


def _settle(sound: SnacState) -> int:
    [place] = sound.places
    if not place.ended:
        raise ComponentError("the language model stopped without saying that its answer has ended")
    return place.frames
