"""Audio at another sample rate, and of one channel."""

from __future__ import annotations

from math import gcd

import numpy as np
from scipy.signal import resample_poly

from mstar_plan.errors import InvalidInputError
from mstar_plan.types import FloatArray

LOWEST_RATE, HIGHEST_RATE = 4_000, 192_000
LARGEST_STEP = 4_096  # of the reduced ratio; the filter has 20 times as many taps


def resample(audio: FloatArray, rate: int, to_rate: int) -> FloatArray:
    """Returns audio [n] float32 at another rate, through a linear-phase filter that keeps its place in time.

    Args:
        audio: [n] at `rate`.
        rate: Its samples a second.
        to_rate: Wanted samples a second; the result has ceil(n * to_rate / rate) samples.

    Raises:
        InvalidInputError: A rate is out of bounds, or the two are in no usable ratio.
    """
    for name, value in (("rate", rate), ("to_rate", to_rate)):
        if not LOWEST_RATE <= value <= HIGHEST_RATE:
            raise InvalidInputError(
                f"{name} is {value}; it needs {LOWEST_RATE} to {HIGHEST_RATE} samples a second", field=name
            )
    if rate == to_rate:
        return np.ascontiguousarray(audio, dtype=np.float32)
    common = gcd(rate, to_rate)
    up, down = to_rate // common, rate // common
    if max(up, down) > LARGEST_STEP:
        raise InvalidInputError(
            f"{rate} to {to_rate} samples a second is a ratio of {up}/{down}; send a usual rate such as {to_rate}, "
            "44100 or 48000",
            field="rate",
        )
    made: FloatArray = resample_poly(np.asarray(audio, dtype=np.float32), up, down).astype(np.float32)
    return made


def to_mono(audio: FloatArray) -> FloatArray:
    """Returns [n] or [n, channels] as the mean over its channels, [n].

    Raises:
        InvalidInputError: It has another rank, or no channel.
    """
    array = np.asarray(audio, dtype=np.float32)
    if array.ndim == 2 and array.shape[1]:
        return np.ascontiguousarray(array.mean(1, dtype=np.float32))
    if array.ndim != 1:
        raise InvalidInputError(f"audio has shape {array.shape}; send [samples] or [samples, channels]", field="audio")
    return array
