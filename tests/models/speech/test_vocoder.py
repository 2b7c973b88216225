"""The vocoder: any pieces, put together, are the whole; and the whole is what the package's own code makes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hibari import dsp

from mstar_plan.models.speech.vocoder import BINS, HOP, WINDOW, Frames, draw_noise, mirror, render

COUNT = 23
PITCH = np.where(np.arange(COUNT) % 9 < 7, 180 + 5 * np.arange(COUNT), 0).astype(np.float32)  # voiced, and not


def parts(seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    scales = (-1.0, 0.5, -2.0, -1.5, 3.0)
    return [(rng.standard_normal((BINS, COUNT)) * 0.5 + s).astype(np.float32) for s in scales]


def frames(seed: int = 7) -> Frames:
    return Frames(*parts(), pulses=mirror(dsp.pulses(PITCH)), noise=draw_noise(COUNT, seed))


def in_pieces(made: Frames, size: int) -> np.ndarray:
    return np.concatenate([render(made, at, min(at + size, COUNT)) for at in range(0, COUNT, size)])


@pytest.mark.parametrize("size", range(1, COUNT + 2))
def test_pieces_of_every_size_are_the_package_s_one_shot(size: int) -> None:
    one_shot = dsp.synth(*parts(), PITCH, np.random.default_rng(7))
    assert one_shot.shape == (COUNT * HOP,)
    assert np.abs(one_shot).max() > 0.05  # there is something to compare
    made = in_pieces(frames(), size)
    assert made.dtype == np.float32
    assert made.shape == one_shot.shape
    assert np.abs(made - one_shot).max() <= 1e-5


def test_the_whole_is_the_inverse_transform_of_its_spectrum() -> None:
    harmonic, turn, rough, free, phase = (torch.from_numpy(p).double() for p in parts())
    made = frames()
    pulses = torch.from_numpy(np.asarray(dsp.pulses(PITCH))).double()
    window = torch.hann_window(WINDOW, dtype=torch.float64)
    source = torch.stft(pulses, WINDOW, HOP, window=window, return_complex=True)[:, :COUNT] / HOP
    spectrum = torch.polar(harmonic.exp(), torch.pi * turn.tanh()) * source
    spectrum = spectrum + rough.exp() * torch.from_numpy(made.noise) + torch.polar(free.exp(), phase)
    spectrum[[0, -1]] = spectrum[[0, -1]].real.to(spectrum.dtype)
    want = torch.istft(spectrum, WINDOW, HOP, window=window, length=COUNT * HOP, center=True)
    inside = slice(0, (COUNT - 2) * HOP)  # behind it, windows that no frame fills weigh in otherwise
    assert np.abs(render(made, 0, COUNT)[inside] - want.numpy()[inside]).max() < 1e-4


def test_noise_follows_its_seed() -> None:
    assert np.array_equal(draw_noise(5, 1), draw_noise(5, 1))
    assert not np.array_equal(draw_noise(5, 1), draw_noise(5, 2))
    assert draw_noise(5, 1).shape == (BINS, 5)
    assert not np.array_equal(render(frames(1), 0, 3), render(frames(2), 0, 3))
