"""Tokens to codes: each place of a frame has its own ids, and what is no code there is left out."""

from __future__ import annotations

import dataclasses

import pytest
from toy_speech import SIZES, TOKENS

from mstar_plan.errors import WeightsError
from mstar_plan.models.orpheus.tokens import Heard, OrpheusTokens, deinterleave, hear, interleave
from mstar_plan.models.snac.config import SnacConfig


def test_published_ids() -> None:
    tokens = OrpheusTokens()
    assert tokens.prompt([128000, 5]) == [128259, 128000, 5, 128009, 128260, 128261, 128257]
    assert tokens.size == 128256 + 10 + 7 * 4096
    for place, code in ((0, 0), (0, 4095), (3, 17), (6, 4095)):
        token = 128256 + 10 + place * 4096 + code
        assert tokens.code(token, place) == code
        assert tokens.token(code, place) == token
        assert all(tokens.code(token, other) is None for other in range(7) if other != place)
    tokens.fits(SnacConfig())


def test_frames_are_read_depth_first() -> None:
    assert deinterleave([10, 11, 12, 13, 14, 15, 16]) == ((10,), (11, 14), (12, 13, 15, 16))
    two = deinterleave(range(14))
    assert two == ((0, 7), (1, 4, 8, 11), (2, 3, 5, 6, 9, 10, 12, 13))
    assert interleave(two) == tuple(range(14))
    assert deinterleave([]) == ((), (), ())


def test_hears_frames_as_they_become_whole() -> None:
    written = [TOKENS.token(i, i % 7) for i in range(16)]
    heard, books = Heard(), []
    for token in written:
        heard = hear(heard, [token], False, TOKENS)
        books += [heard.whole] if heard.whole else []
    assert books == [deinterleave(range(7)), deinterleave(range(7, 14))]
    assert heard.open == (14, 15)
    at_once = hear(Heard(), written, True, TOKENS)
    assert at_once == Heard((14, 15), deinterleave(range(14)), True, 0)


def test_everything_else_is_left_out() -> None:
    """Code 0 counts; text, codes of another place and the id behind the last code do not."""
    place = TOKENS.token
    noise = [5, place(3, 4), TOKENS.first_code + 7 * TOKENS.spacing, TOKENS.first_code - 1]
    written = [noise[0], place(0, 0), noise[1], place(15, 1), *(place(0, j) for j in range(2, 6)), *noise[2:]]
    heard = hear(Heard(), [*written, place(0, 6), TOKENS.end], True, TOKENS)
    assert heard.whole == deinterleave([0, 15, 0, 0, 0, 0, 0])
    assert heard.ignored == len(noise)


def test_a_codec_must_have_the_books() -> None:
    TOKENS.fits(SIZES)
    for change in ({"vq_strides": (2, 1)}, {"vq_strides": (4, 4, 1)}, {"codebook_size": 15}):
        config = dataclasses.replace(SIZES, **change)
        with pytest.raises(WeightsError, match="the tokens need"):
            TOKENS.fits(config)
    with pytest.raises(WeightsError, match="codes"):
        OrpheusTokens(codes=5000)
