"""The SNAC codec, the tokens that speak through it, and the published streaming loop beside our exact one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from mstar_plan.evaluation.golden.case import Comparison, GoldenCase
from mstar_plan.models.orpheus.published import books_of, published_chunks, published_codes
from mstar_plan.models.orpheus.tokens import OrpheusTokens, deinterleave
from mstar_plan.models.snac.checkpoint import build_snac
from mstar_plan.models.snac.codec import Snac
from mstar_plan.models.snac.config import SnacConfig
from mstar_plan.models.snac.stream import SnacStream

FULL_SCALE = 32767  # what 1.0 is in the samples that the published loop sends


def check_orpheus_snac(case: GoldenCase) -> Iterator[Comparison]:
    """Codes to latents to audio without noise and with the stored one, audio to codes, and the stream."""
    codec = build_snac(SnacConfig.from_published(case.config), case.weights())
    books = range(len(codec.config.vq_strides))
    if case.has(*(f"in.codes{book}" for book in books)):
        yield from _decoding(case, codec, [case.input(f"codes{book}") for book in books])
    if case.has("in.audio"):
        for book, codes in enumerate(codec.encode(case.input("audio"))):
            if case.has(f"out.encode_codes{book}"):
                yield case.compare(f"out.encode_codes{book}", codes)
    if case.has("in.map.frames"):
        flat = case.input("map.frames").flatten().tolist()
        for book, row in enumerate(deinterleave(flat)):
            if case.has(f"out.map.codes{book}"):
                yield case.compare(f"out.map.codes{book}", torch.tensor([row]))
    if case.has("in.stream.custom_token_numbers"):
        yield from _streaming(case, codec)


def _decoding(case: GoldenCase, codec: Snac, codes: Sequence[Tensor]) -> Iterator[Comparison]:
    if case.has("out.zq"):
        yield case.compare("out.zq", codec.latent(codes))
    if case.has("out.audio_zero_noise"):
        yield case.compare("out.audio_zero_noise", codec.decode(codes))
        for frames in (1, 3):
            yield case.compare("out.audio_zero_noise", _streamed(codec, codes, frames)[:, None])
    noise = [f"out.noise{block}" for block in range(len(codec.config.noise_per_frame))]
    if case.has("out.audio_with_noise", *noise):
        yield case.compare("out.audio_with_noise", codec.decode(codes, [case.io[name] for name in noise]))


def _streaming(case: GoldenCase, codec: Snac) -> Iterator[Comparison]:
    tokens = OrpheusTokens()
    accepted = published_codes(case.input("stream.custom_token_numbers").tolist(), tokens)
    if case.has("out.stream.accepted"):
        yield case.compare("out.stream.accepted", torch.tensor(accepted))
    if case.has("out.stream.chunks"):
        yield _cut_off(case, "out.stream.chunks", list(published_chunks(codec, accepted, tokens)))
    if case.has("out.stream.full_audio"):
        books = books_of(accepted, tokens, codec.device)
        yield case.compare("out.stream.full_audio", codec.decode(books))
        for frames in (1, 2):
            yield case.compare("out.stream.full_audio", _streamed(codec, books, frames)[:, None])


def _streamed(codec: Snac, codes: Sequence[Tensor], frames: int) -> Tensor:
    """[B, n]: the exact stream of ours, put together."""
    stream, per_frame = SnacStream(codec), codec.config.codes_per_frame
    state = stream.begin([None] * codes[0].shape[0])
    count, parts = codes[0].shape[-1] // per_frame[0], []
    for start in range(0, count, frames):
        part = [book[:, start * each : (start + frames) * each] for book, each in zip(codes, per_frame, strict=True)]
        audio, state = stream.step(state, part, start + frames >= count)
        parts.append(audio)
    return torch.cat(parts, -1)


def _cut_off(case: GoldenCase, name: str, chunks: Sequence[Tensor]) -> Comparison:
    """Compares samples with whole numbers that the reference has cut off towards zero: each stands for a range."""
    whole = case.io[name].double()
    if len(chunks) != len(whole) or any(chunk.shape != whole.shape[1:] for chunk in chunks):
        shapes = [list(chunk.shape) for chunk in chunks]
        return Comparison(name, math.inf, False, f"chunks of {shapes}; expected {list(whole.shape)}")
    if not chunks:
        return Comparison(name, 0.0, True)
    samples = torch.stack(list(chunks)).double()
    low = torch.where(whole > 0, whole, whole - 1) / FULL_SCALE
    high = torch.where(whole < 0, whole, whole + 1) / FULL_SCALE
    error = torch.maximum(low - samples, samples - high).clamp(min=0)
    ok = bool((error <= case.atol + case.rtol * samples.abs()).all())
    return Comparison(name, math.inf if error.isnan().any() else float(error.max()), ok)
