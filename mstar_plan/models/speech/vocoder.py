"""From the speech network's frames to samples, any stretch of them at a time: pieces, put together, are the whole.

The formula is the one in the readme of hibari-tts ("ONNX interface"): with E the short-time spectrum of a pulse train,

    S = exp(lh) e^(i pi tanh(theta)) E + exp(ln) Z + exp(lr) e^(i phi)

and the samples are the inverse transform of S (Hann window of 1200, hop 300, centred; Griffin and Lim 1984).

Shapes: F frames, K 601 bins, W 1200 samples of a window.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import fft

from mstar_plan.types import FloatArray

HOP, WINDOW = 300, 1200
BINS = WINDOW // 2 + 1
HALF = WINDOW // 2
_HANN: FloatArray = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)).astype(np.float32)
_CEILING = 7.0  # of the logarithmic magnitudes
_Complex = npt.NDArray[np.complex64]


@dataclass(frozen=True, eq=False)
class Frames:
    """What the network says of one clause; all but the pulses are [K, F].

    Attributes:
        harmonic: Logarithm of the harmonic part's magnitude, lh.
        turn: Its phase before tanh, in half turns, theta.
        rough: Logarithm of the noise's magnitude, ln.
        free: Logarithm of the free part's magnitude, lr.
        phase: Its phase in radians, phi.
        pulses: [F * 300 + 1200] pulse train, mirrored at both ends (`mirror`).
        noise: Complex, of unit variance in each component, Z.
    """

    harmonic: FloatArray
    turn: FloatArray
    rough: FloatArray
    free: FloatArray
    phase: FloatArray
    pulses: FloatArray
    noise: _Complex

    @property
    def count(self) -> int:
        """F."""
        return int(self.harmonic.shape[1])


def mirror(pulses: FloatArray) -> FloatArray:
    """Returns a pulse train [n] with half a window more at each end, [n + 1200]."""
    padded: FloatArray = np.pad(np.asarray(pulses, np.float32), HALF, mode="reflect")
    return padded


def draw_noise(frames: int, seed: int) -> _Complex:
    """Returns [K, frames] noise that a seed decides; drawn as a whole, so that it does not depend on the pieces."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((BINS, 2 * frames), dtype=np.float32).view(np.complex64)


def render(frames: Frames, start: int, stop: int) -> FloatArray:
    """Returns the samples [(stop - start) * 300] of the frames from `start` up to `stop`.

    A sample is the sum of up to four overlapping windows: one frame before and two frames behind are computed as well.
    """
    low, high = max(0, start - 1), min(frames.count, stop + 2)
    waves_FW: FloatArray = np.asarray(fft.irfft(_spectrum(frames, low, high).T, n=WINDOW, axis=1), np.float32)
    waves_FW *= _HANN
    length = (high - low - 1) * HOP + WINDOW
    total, weight = np.zeros(length, np.float32), np.zeros(length, np.float32)
    for at, wave in enumerate(waves_FW):
        total[at * HOP : at * HOP + WINDOW] += wave
        weight[at * HOP : at * HOP + WINDOW] += _HANN * _HANN
    begin = HALF + (start - low) * HOP
    part = slice(begin, begin + (stop - start) * HOP)
    samples: FloatArray = np.asarray(total[part] / np.maximum(weight[part], np.float32(1e-11)), np.float32)
    return samples


def _spectrum(frames: Frames, low: int, high: int) -> _Complex:
    """[K, high - low] of these frames."""
    part = np.s_[:, low:high]
    turned_KF = np.float32(np.pi) * np.tanh(frames.turn[part])
    spectrum_KF = _short_time(frames.pulses, low, high) * (_magnitude(frames.harmonic[part]) * _phase(turned_KF))
    spectrum_KF += _magnitude(frames.rough[part]) * frames.noise[part]
    spectrum_KF += _magnitude(frames.free[part]) * _phase(frames.phase[part])
    return spectrum_KF


def _magnitude(logarithm_KF: FloatArray) -> FloatArray:
    made: FloatArray = np.exp(np.minimum(logarithm_KF, np.float32(_CEILING)))
    return made


def _phase(angle_KF: FloatArray) -> _Complex:
    phase_KF = np.empty(angle_KF.shape, np.complex64)
    np.cos(angle_KF, out=phase_KF.real)
    np.sin(angle_KF, out=phase_KF.imag)
    return phase_KF


def _short_time(pulses: FloatArray, low: int, high: int) -> _Complex:
    """[K, high - low]: the spectrum of the pulse train around these frames."""
    windows_FW = np.lib.stride_tricks.sliding_window_view(pulses, WINDOW)[low * HOP : high * HOP : HOP]
    spectrum: _Complex = fft.rfft(windows_FW * (_HANN / np.float32(HOP)), axis=1).T
    return spectrum
