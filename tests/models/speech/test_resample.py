"""Resampling: a tone stays the same tone, at the same time, and what cannot be done is told."""

from __future__ import annotations

import numpy as np
import pytest

from mstar_plan.errors import InvalidInputError
from mstar_plan.models.speech.resample import resample, to_mono


def tone(rate: int, seconds: float = 0.5, hertz: float = 440.0) -> np.ndarray:
    return np.sin(2 * np.pi * hertz * np.arange(int(rate * seconds)) / rate).astype(np.float32)


@pytest.mark.parametrize("rate", [8000, 11025, 22050, 24000, 44100, 48000, 16000])
def test_a_tone_stays_the_same_tone_at_the_same_time(rate: int) -> None:
    made = resample(tone(rate), rate, 16000)
    assert made.dtype == np.float32
    assert len(made) == int(np.ceil(len(tone(rate)) * 16000 / rate))
    middle = slice(800, 7000)
    assert np.abs(made[middle] - tone(16000)[middle]).max() < 5e-3


def test_what_is_above_half_of_the_new_rate_is_filtered_out() -> None:
    made = resample(tone(48000, hertz=15_000), 48000, 16000)
    assert np.abs(made[800:-800]).max() < 1e-2


@pytest.mark.parametrize(("rate", "to_rate"), [(0, 16000), (16000, 10**9), (-1, 16000), (16001, 191_999)])
def test_rates_that_make_no_sense_are_refused(rate: int, to_rate: int) -> None:
    with pytest.raises(InvalidInputError, match=r"rate|ratio"):
        resample(tone(16000), rate, to_rate)


def test_channels_are_averaged() -> None:
    stereo = np.stack([tone(16000), np.zeros(8000, np.float32)], 1)
    assert np.allclose(to_mono(stereo), tone(16000) / 2)
    assert np.array_equal(to_mono(tone(16000)), tone(16000))
    with pytest.raises(InvalidInputError, match="shape"):
        to_mono(np.zeros((2, 2, 2), np.float32))
