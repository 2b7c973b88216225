"""The stream of many requests: exact, joined where it can be, with noise that does not depend on the cut."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor
from toy_speech import KINDS, SIZES, toy_codec, toy_codes

from mstar_plan.errors import ComponentError, InvalidInputError, WalkError
from mstar_plan.models.snac.codec import Snac
from mstar_plan.models.snac.noise import draw_noise
from mstar_plan.models.snac.stream import FrameChunks, Frames, SnacState, SnacStep, SnacStream
from mstar_plan.walks.batch import Batch
from mstar_plan.walks.stream import Stream, StreamBuffer


def cut(codes: list[Tensor], start: int, stop: int, per_frame: tuple[int, ...]) -> list[Tensor]:
    return [book[:, start * each : stop * each] for book, each in zip(codes, per_frame, strict=True)]


def frames_of(codes: list[Tensor], start: int, stop: int, codec: Snac, last: bool = False) -> Frames:
    books = cut(codes, start, stop, codec.config.codes_per_frame)
    return Frames(tuple(tuple(book[0].tolist()) for book in books), last)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 2, 3, 5, 16])
@torch.inference_mode()
def test_equals_one_shot(kind: str, size: int) -> None:
    config = KINDS[kind]
    codec, frames = toy_codec(config), 16
    codes = toy_codes(config, frames, rows=2)
    seeds: list[int | None] = [3, 4] if config.noise else [None, None]
    stream = SnacStream(codec)
    state, out = stream.begin(seeds), []
    for start in range(0, frames, size):
        audio, state = stream.step(
            state, cut(codes, start, start + size, config.codes_per_frame), start + size >= frames
        )
        out.append(audio)
    noise = draw_noise(config, [3, 4], frames) if config.noise else None
    torch.testing.assert_close(torch.cat(out, -1), codec.decode(codes, noise)[:, 0], rtol=0, atol=1e-12)
    assert [place.frames for place in state.places] == [frames] * 2


@torch.inference_mode()
def test_float32_is_exact_to_rounding() -> None:
    codec, codes = toy_codec().float(), toy_codes(SIZES, 30)
    stream, out = SnacStream(codec), []
    state = stream.begin([None])
    for start in range(30):
        audio, state = stream.step(state, cut(codes, start, start + 1, SIZES.codes_per_frame), start == 29)
        out.append(audio)
    assert (torch.cat(out, -1) - codec.decode(codes)[:, 0]).abs().max() <= 1e-5


@torch.inference_mode()
def test_end_without_a_new_frame() -> None:
    codec, codes = toy_codec(), toy_codes(SIZES, 2)
    stream = SnacStream(codec)
    first, state = stream.step(stream.begin([None]), codes, False)
    assert first.shape == (1, 0)
    rest, _ = stream.step(state, None, True)
    torch.testing.assert_close(rest, codec.decode(codes)[:, 0], rtol=0, atol=1e-12)


def test_state_joins_and_splits() -> None:
    stream = SnacStream(toy_codec())
    a, b = stream.begin([1]), stream.begin([2, 3])
    assert a.join_key() == b.join_key()
    assert a.join_key() != stream.begin([None]).join_key()
    joined = SnacState.join([a, b])
    assert [place.seed for place in joined.places] == [1, 2, 3]
    back = joined.split([1, 2])
    assert [part.places for part in back] == [a.places, b.places]
    assert all(torch.equal(x, y) for part, whole in zip(back, (a, b), strict=True)
               for x, y in zip(part.kept, whole.kept, strict=True))  # fmt: skip


@torch.inference_mode()
def test_requests_at_different_places_share_steps() -> None:
    """Whoever shares a step, everyone's speech is their own; those that stand equally far are decoded together."""
    codec = toy_codec()
    counts, sizes = [], [9, 12, 7, 12, 1]
    step = SnacStep(SnacStream(codec))
    original = step.stream.step

    def counted(state: SnacState, codes: list[Tensor] | None, last: bool) -> tuple[Tensor, SnacState]:
        counts.append(len(state.places))
        return original(state, codes, last)

    step.stream.step = counted  # type: ignore[method-assign, assignment]
    codes = [toy_codes(SIZES, n, seed=n + i) for i, n in enumerate(sizes)]
    states, out = [step.stream.begin([i]) for i in range(len(sizes))], [[] for _ in sizes]
    at, rng = [0] * len(sizes), random.Random(1)
    while any(here < n for here, n in zip(at, sizes, strict=True)):
        open_ = [i for i, n in enumerate(sizes) if at[i] < n]
        chosen = rng.sample(open_, rng.randint(1, len(open_)))
        batches = [
            Batch(
                {"frames": (frames_of(codes[i], at[i], at[i] + 1, codec, at[i] + 1 == sizes[i]),), "sound": states[i]},
                1,
            )
            for i in chosen
        ]
        for i, answer in zip(chosen, step.run(batches), strict=True):
            states[i], at[i] = answer["sound"], at[i] + 1
            out[i].append(answer["audio"])
    assert max(counts) > 1
    for i, n in enumerate(sizes):
        want = codec.decode(codes[i], draw_noise(SIZES, [i], n))[:, 0]
        torch.testing.assert_close(torch.cat(out[i], -1), want, rtol=0, atol=1e-12)


def test_several_items_are_one_step() -> None:
    codec, codes = toy_codec(), toy_codes(SIZES, 8)
    step = SnacStep(SnacStream(codec))
    items = (*(frames_of(codes, i, i + 1, codec) for i in range(7)), frames_of(codes, 7, 8, codec), Frames(last=True))
    answer = step(Batch({"frames": items, "sound": step.stream.begin([None])}, 1))
    torch.testing.assert_close(answer["audio"], codec.decode(codes)[:, 0], rtol=0, atol=1e-12)
    assert answer["sound"].places[0].ended


def test_refused() -> None:
    codec = toy_codec()
    step = SnacStep(SnacStream(codec))
    begun = step.stream.begin([None])
    with pytest.raises(ComponentError, match="before its first whole frame"):
        step(Batch({"frames": (Frames(last=True),), "sound": begun}, 1))
    one = frames_of(toy_codes(SIZES, 1), 0, 1, codec, last=True)
    ended = step(Batch({"frames": (one,), "sound": begun}, 1))["sound"]
    with pytest.raises(ComponentError, match="after the last"):
        step(Batch({"frames": (one,), "sound": ended}, 1))
    with pytest.raises(InvalidInputError, match="send 0 to 15"):
        step(Batch({"frames": (Frames(((99,), (0, 0), (0, 0, 0, 0))),), "sound": begun}, 1))


@pytest.mark.parametrize("first", [1, 3])
@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("items", [1, 2, 3, 4, 8])
def test_chunks_begin_long_and_lose_nothing(first: int, size: int, items: int) -> None:
    buffer, chunks = StreamBuffer(Stream("a", "b", FrameChunks(first, size))), []
    for item in range(items):
        buffer.push(item)
        while buffer.has_chunk():
            chunks.append(buffer.pop()[0])
    if items >= first:
        assert len(chunks[0]) == first
    buffer.closed = True
    while buffer.has_chunk():
        chunks.append(buffer.pop()[0])
    assert [item for chunk in chunks for item in chunk] == list(range(items))
    assert all(len(chunk) == size for chunk in chunks[1:-1])


def test_chunk_sizes_are_checked() -> None:
    with pytest.raises(WalkError, match="first is 0"):
        FrameChunks(0)
    with pytest.raises(WalkError, match="size is True"):
        FrameChunks(2, True)
