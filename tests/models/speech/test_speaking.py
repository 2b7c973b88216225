"""The walk that speaks: its pieces are the one shot, come while it speaks, and stop when nobody listens any more."""

from __future__ import annotations

import gc
import random
import threading
import time
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from speech_parts import package, speaker
from walk_driver import run, run_together

from mstar_plan.errors import ComponentError, InvalidInputError
from mstar_plan.models.speech.clauses import split_clauses
from mstar_plan.models.speech.speaker import SpeakerConfig
from mstar_plan.models.speech.speaking import MAX_RUNS, one, runs_of, speaking_components, speaking_graph
from mstar_plan.runtime.request import Done, Value
from mstar_plan.runtime.runtime import Runtime
from mstar_plan.walks.component import Batching, FunctionComponent
from mstar_plan.walks.graph import Graph

TEXT = "Hello there. On the 3rd of May, Dr. Smith paid $9.99!\n- It was *not* much."


def values(text: str = TEXT, seed: int = 0, speed: float = 1.0) -> dict[str, Any]:
    return {"text": text, "voice": "", "speed": speed, "seed": seed}


def one_shot(text: str, seed: int = 0, speed: float = 1.0) -> np.ndarray:
    """By the package's own code, clause by clause."""
    runs = runs_of(speaker(), split_clauses(text), "heart")
    return np.concatenate([package().from_phonemes(r.phonemes, speed=speed, seed=seed + r.number) for r in runs])


@pytest.mark.parametrize("piece_frames", [1, 2, 5, 32, 1000])
def test_what_is_streamed_is_the_one_shot_with_nothing_lost(monkeypatch: pytest.MonkeyPatch, piece_frames: int) -> None:
    monkeypatch.setattr(speaker(), "config", SpeakerConfig(piece_frames=piece_frames))
    want = one_shot(TEXT)
    with Runtime(speaking_graph("hibari", speaker())) as runtime:
        events = list(runtime.stream("speak", values(), emit=("audio",)))
    pieces = [event.value for event in events if isinstance(event, Value)]
    assert isinstance(events[-1], Done)
    speech = events[-1].result.outputs["speech"]
    assert torch.equal(torch.cat(pieces, 1), speech)
    assert all(p.dtype == torch.float32 and p.ndim == 2 and 1 <= p.shape[1] <= 300 * piece_frames for p in pieces)
    assert speech.shape == (1, len(want))
    assert np.abs(speech[0].numpy() - want).max() <= 1e-5
    assert bool(speech.isfinite().all())
    assert 0.05 < float(speech.abs().max()) <= 1


def test_requests_that_share_a_runtime_do_not_hear_each_other() -> None:
    texts = ["Yes.", "No, not yet. Wait a bit.", TEXT, "Yes."]
    graph = speaking_graph("hibari", speaker())
    together = run_together(graph, "speak", [values(t, seed) for seed, t in enumerate(texts)], random.Random(0))
    for seed, text in enumerate(texts):
        assert torch.equal(together[seed]["speech"], run(graph, "speak", values(text, seed)).outputs["speech"])
    assert not torch.equal(together[0]["speech"], together[3]["speech"])  # the seeds differ


def test_clauses_have_noise_of_their_own() -> None:
    speech = run(speaking_graph("hibari", speaker()), "speak", values("Yes. Yes.")).outputs["speech"][0]
    half = len(speech) // 2
    assert len(speech) % 2 == 0
    assert not torch.equal(speech[:half], speech[half:])
    numbers = [r.number for r in runs_of(speaker(), split_clauses("Yes. 🙂. No."), "heart")]
    assert numbers == [0, MAX_RUNS]


def test_speed_is_speed() -> None:
    graph = speaking_graph("hibari", speaker())
    lengths = [
        run(graph, "speak", values("How are you today?", speed=s)).outputs["speech"].shape[1] for s in (2.0, 1.0, 0.5)
    ]
    assert lengths[0] * 1.5 < lengths[1] < lengths[2] / 1.5


@pytest.mark.parametrize(
    ("change", "match"),
    [({"text": "🙂"}, "nothing to say"), ({"text": "你好"}, "nothing to say"), ({"speed": 3.0}, "speed is 3.0"),
     ({"speed": float("nan")}, "speed is nan"), ({"voice": "nobody"}, "no voice 'nobody'")],
)  # fmt: skip
def test_mistakes_are_told(change: dict[str, Any], match: str) -> None:
    with Runtime(speaking_graph("hibari", speaker())) as runtime, pytest.raises(InvalidInputError, match=match):
        runtime.submit("speak", {**values(), **change}).result()


def test_one_row_at_a_time() -> None:
    assert one(torch.tensor([3])) == 3
    with pytest.raises(ComponentError, match="one row"):
        one(torch.tensor([3, 4]))


class Gate:
    """Lets as many pieces through as it is told, and remembers what the last one was made of."""

    def __init__(self) -> None:
        self.tickets, self.rendered = threading.Semaphore(0), 0
        self.frames: weakref.ref[Any] | None = None

    def graph(self) -> Graph:
        components = speaking_components(speaker())
        render = components["render"]

        def gated(frames: Any, piece: torch.Tensor) -> torch.Tensor:
            assert self.tickets.acquire(timeout=10)
            self.rendered += 1
            self.frames = weakref.ref(frames)
            return render.function(frames, piece)  # type: ignore[attr-defined]

        ports = ("frames", "piece"), ("audio",)
        components["render"] = FunctionComponent(gated, *ports, Batching.ALONE)
        plain = speaking_graph("hibari", speaker())
        return Graph("hibari", components, plain.walks)


@pytest.mark.parametrize("how", ["close", "forget"])
def test_who_stops_listening_stops_the_voice_at_the_next_piece(how: str) -> None:
    gate, threads = Gate(), set(threading.enumerate())
    with Runtime(gate.graph()) as runtime:
        stream = runtime.stream("speak", values("word " * 200), emit=("audio",))
        request = stream.request
        gate.tickets.release(2)
        assert isinstance(next(stream), Value)
        assert isinstance(next(stream), Value)
        if how == "close":
            stream.close()
            assert list(stream) == []
        del stream
        assert request.cancelled()
        gate.tickets.release(1000)
        after = runtime.submit("speak", values("Yes.")).result(timeout=20)  # the worker is free for others
        mine = -(-after.outputs["speech"].shape[1] // (300 * speaker().config.piece_frames))
        assert gate.rendered <= 2 + 1 + mine  # one may have been under way
        began = time.monotonic()
    assert time.monotonic() - began < 5  # nothing is left to wait for
    gc.collect()
    assert gate.frames is not None
    assert gate.frames() is None  # and nothing is kept
    assert set(threading.enumerate()) <= threads
