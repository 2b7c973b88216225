"""The published loop and what is wrong with it, which ours must not have."""

from __future__ import annotations

import pytest
import torch
from toy_speech import SIZES, TOKENS, toy_codec, toy_codes

from mstar_plan.models.orpheus.published import FIRST_NUMBER, books_of, published_chunks, published_codes
from mstar_plan.models.orpheus.tokens import interleave
from mstar_plan.models.snac.stream import SnacStream


def test_code_nought_and_early_places_are_dropped() -> None:
    spacing = TOKENS.spacing
    numbers = [FIRST_NUMBER, FIRST_NUMBER + 3, 2, FIRST_NUMBER + spacing, FIRST_NUMBER + spacing + 5]
    assert published_codes(numbers, TOKENS) == [3, 5]


@torch.inference_mode()
def test_loses_both_ends_and_is_not_exact_where_ours_is() -> None:
    codec, frames = toy_codec(), 9
    codes = toy_codes(SIZES, frames)
    flat = interleave([book[0].tolist() for book in codes])
    assert all(torch.equal(a, b) for a, b in zip(books_of([*flat, 1, 1], TOKENS, "cpu"), codes, strict=True))
    whole = codec.decode(codes)[0, 0]
    chunks = list(published_chunks(codec, flat, TOKENS))
    size = SIZES.frame_samples
    assert len(chunks) == frames - 3
    middle = whole[size : size * (frames - 2)]
    error = (torch.cat(chunks) - middle).abs().max()
    ours, _ = SnacStream(codec).step(SnacStream(codec).begin([None]), codes, True)
    assert (ours[0] - whole).abs().max() < 1e-12 < 1e-4 < error


def test_a_window_with_a_code_too_high_gives_nothing() -> None:
    codec = toy_codec()
    flat = list(interleave([book[0].tolist() for book in toy_codes(SIZES, 5)]))
    assert len(list(published_chunks(codec, flat, TOKENS))) == 2
    assert list(published_chunks(codec, [*flat[:10], TOKENS.spacing + 1, *flat[11:]], TOKENS)) == []


@pytest.mark.parametrize("count", [0, 27])
def test_too_short_for_a_window(count: int) -> None:
    assert list(published_chunks(toy_codec(), [1] * count, TOKENS)) == []
