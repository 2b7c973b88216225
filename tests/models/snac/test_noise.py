"""Noise: the same wherever it is cut, other for every seed, block and frame."""

from __future__ import annotations

import torch
from toy_speech import SIZES

from mstar_plan.models.snac.noise import draw_noise, frame_noise, noise_between


def test_any_part_is_that_part_of_the_whole() -> None:
    for block, size in enumerate(SIZES.noise_per_frame):
        whole = noise_between(SIZES, 7, block, 0, 5 * size)
        assert len(whole) == 5 * size
        for start, stop in ((0, 1), (3, 2 * size + 1), (size, 2 * size), (5 * size - 1, 5 * size)):
            assert torch.equal(noise_between(SIZES, 7, block, start, stop), whole[start:stop])


def test_every_part_of_the_key_counts() -> None:
    drawn = {
        tuple(frame_noise(SIZES, seed, block, frame)[:4].tolist())
        for seed in (0, 1, 2**64 - 1)
        for block in (0, 1)
        for frame in (0, 1, 2)
    }
    assert len(drawn) == 18


def test_standard_normal_for_each_row() -> None:
    noise = draw_noise(SIZES, [1, 2], 400)
    assert [tuple(each.shape) for each in noise] == [(2, 1, 400 * size) for size in SIZES.noise_per_frame]
    assert abs(float(noise[1].mean())) < 0.05
    assert abs(float(noise[1].std()) - 1) < 0.05
    assert not torch.equal(noise[0][0], noise[0][1])
    assert torch.equal(draw_noise(SIZES, [2], 400)[1][0], noise[1][1])
