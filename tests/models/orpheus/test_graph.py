"""The speaking walk over a scripted language model: exact, in pieces as they become certain, for many requests."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from toy_speech import KINDS, SIZES, TOKENS, script, scripted_language, tokens_of, toy_codec, toy_codes
from walk_driver import run, run_together

from mstar_plan.errors import ComponentError, WalkError, WeightsError
from mstar_plan.models.orpheus.graph import SPEAK, SpeakConfig, orpheus_graph
from mstar_plan.models.snac.noise import draw_noise
from mstar_plan.runtime.generation.text import TextDelta
from mstar_plan.runtime.runtime import Runtime
from mstar_plan.walks.graph import Graph
from mstar_plan.walks.step import Loop, Node
from mstar_plan.walks.walk import Walk

CODEC = toy_codec()


def graph(chunk_frames: int = 1) -> Graph:
    language, generate = scripted_language()
    return orpheus_graph("toy", language, generate, CODEC, SpeakConfig(TOKENS, chunk_frames))


def request(frames: int, seed: int = 0, noise_seed: int | None = None) -> tuple[dict[str, Any], Tensor]:
    """Values, and the speech [1, n] that they must give."""
    codes = toy_codes(SIZES, frames, seed=seed)
    noise = None if noise_seed is None else draw_noise(SIZES, [noise_seed], frames)
    with torch.inference_mode():
        speech = CODEC.decode(codes, noise)[:, 0]
    return {"lines": script([*tokens_of(codes), TOKENS.end]), "noise_seed": noise_seed}, speech


@pytest.mark.parametrize("chunk_frames", [1, 2, 3, 5])
@pytest.mark.parametrize("frames", [1, 5, 6, 7, 8, 13])
@pytest.mark.parametrize("noise_seed", [None, 4])
def test_speech_is_the_one_shot_decode(chunk_frames: int, frames: int, noise_seed: int | None) -> None:
    values, want = request(frames, noise_seed=noise_seed)
    outputs = run(graph(chunk_frames), SPEAK, values).outputs
    torch.testing.assert_close(outputs["speech"], want, rtol=0, atol=1e-12)
    assert outputs["frames_spoken"] == frames
    assert outputs["answers"] == values["lines"]
    assert outputs["steps"] == 7 * frames + 1


def test_pieces_come_as_soon_as_they_are_certain() -> None:
    """No piece is empty, each comes with its own frame, and they add up to the output."""
    values, want = request(12)
    seen: list[tuple[str, int]] = []
    with Runtime(graph()) as runtime, runtime.stream(SPEAK, values, emit=("deltas", "audio")) as events:
        pieces = []
        for event in events:
            if getattr(event, "name", "") == "audio":
                pieces.append(event.value)
                seen.append(("audio", event.value.shape[-1]))
            elif getattr(event, "name", "") == "deltas":
                seen.append(("token", 1))
            else:
                result = event.result
    assert torch.equal(torch.cat(pieces, 1), result.outputs["speech"])
    torch.testing.assert_close(result.outputs["speech"], want, rtol=0, atol=1e-12)
    counts = [count for name, count in seen if name == "audio"]
    assert counts[0] == SIZES.certain_samples(SIZES.first_frames)
    assert counts[1:-1] == [SIZES.frame_samples] * (12 - SIZES.first_frames)
    assert counts[-1] == SIZES.lookahead
    before_first = seen.index(("audio", counts[0]))
    assert before_first < len(seen) - len(counts) - 7  # while the language model was still writing


def test_an_end_with_the_last_code_loses_nothing() -> None:
    values, want = request(7)
    values["lines"] = script([d.tokens[0] for [d] in values["lines"]][:-1], finish="length")
    torch.testing.assert_close(run(graph(), SPEAK, values).outputs["speech"], want, rtol=0, atol=1e-12)


def test_stray_tokens_empty_steps_and_other_answers_do_not_matter() -> None:
    values, want = request(8)
    rng, lines = random.Random(0), []
    for line in values["lines"]:
        lines += [()] * rng.randint(0, 2)
        lines += [(TextDelta(0, "x", (5,)), TextDelta(1, "", (TOKENS.token(1, 0),), (), "stop"))] * rng.randint(0, 1)
        lines.append(line)
    values["lines"] = tuple(lines)
    torch.testing.assert_close(run(graph(), SPEAK, values).outputs["speech"], want, rtol=0, atol=1e-12)


def test_many_tokens_a_step() -> None:
    values, want = request(9)
    tokens = [d.tokens[0] for [d] in values["lines"]]
    parts = [tuple(tokens[i : i + 17]) for i in range(0, len(tokens), 17)]
    values["lines"] = tuple((TextDelta(0, "", p, (), "stop" if p is parts[-1] else None),) for p in parts)
    outputs = run(graph(), SPEAK, values).outputs
    torch.testing.assert_close(outputs["speech"], want, rtol=0, atol=1e-12)
    assert outputs["frames_spoken"] == 9


def test_a_frame_that_is_not_whole_is_left_out() -> None:
    values, want = request(6)
    tokens = [d.tokens[0] for [d] in values["lines"]][:-1]
    values["lines"] = script([*tokens, TOKENS.token(3, 0), TOKENS.token(3, 1), TOKENS.end])
    torch.testing.assert_close(run(graph(), SPEAK, values).outputs["speech"], want, rtol=0, atol=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_requests_share_steps_and_stay_themselves(seed: int) -> None:
    sizes = [3, 9, 7, 9, 12]
    pairs = [request(n, seed=n + i, noise_seed=i if i % 2 else None) for i, n in enumerate(sizes)]
    answers = run_together(graph(), SPEAK, [values for values, _ in pairs], random.Random(seed))
    for answer, (_, want) in zip(answers, pairs, strict=True):
        torch.testing.assert_close(answer["speech"], want, rtol=0, atol=1e-12)


def test_many_on_a_runtime() -> None:
    pairs = [request(n, seed=n) for n in (4, 8, 8, 11)]
    with Runtime(graph(2)) as runtime:
        submitted = [runtime.submit(SPEAK, values) for values, _ in pairs]
        for future, (_, want) in zip(submitted, pairs, strict=True):
            torch.testing.assert_close(future.result(60).outputs["speech"], want, rtol=0, atol=1e-12)


ONE_FRAME = [TOKENS.token(1, place) for place in range(7)]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (script([5, 5, TOKENS.end]), "before its first whole frame"),
        (script([*ONE_FRAME, TOKENS.end])[:-1], "stopped without saying"),
    ],
)
def test_speech_that_is_none_is_an_error(lines: Sequence[Sequence[TextDelta]], said: str) -> None:
    with Runtime(graph()) as runtime, pytest.raises(ComponentError, match=said):
        runtime.submit(SPEAK, {"lines": lines, "noise_seed": None}).result(60)


def test_what_does_not_fit_is_refused() -> None:
    language, generate = scripted_language()
    with pytest.raises(WeightsError, match="the tokens need"):
        orpheus_graph("toy", language, generate, toy_codec(KINDS["single"]), SpeakConfig(TOKENS))
    with pytest.raises(WalkError, match="chunk_frames is 0"):
        SpeakConfig(TOKENS, 0)
    silent = Walk("w", Loop(Node("step", ("x",), ("x",)), times=2, carry=("x",)), ("x",), ("x",))
    with pytest.raises(WalkError, match="deltas"):
        orpheus_graph("toy", language, silent, CODEC, SpeakConfig(TOKENS))
    clash = Walk("w", Node("step", ("audio",), ("deltas",)), ("audio",), ("deltas",))
    with pytest.raises(WalkError, match="'audio', which speech uses"):
        orpheus_graph("toy", language, clash, CODEC, SpeakConfig(TOKENS))
