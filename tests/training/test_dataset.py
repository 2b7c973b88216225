"""Windows and the split."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mstar_plan.errors import InvalidInputError
from mstar_plan.training.dataset import Windows, split


def test_windows_are_consecutive_and_aligned(episodes):
    batch = Windows(episodes, 4).sample(np.random.default_rng(0), 200)
    assert batch.frames.shape == (200, 4, 32, 32, 3)
    assert batch.frames.dtype == torch.uint8
    assert batch.actions.shape == (200, 3, 2)
    starts = set()
    for frames, actions in zip(batch.frames.numpy(), batch.actions.numpy(), strict=True):
        found = [
            (e, t)
            for e in range(12)
            for t in range(6)
            if np.array_equal(episodes.actions[e, t : t + 3], actions)
            and np.array_equal(episodes.frames[e, t : t + 4], frames)
        ]
        assert len(found) == 1
        starts.add(found[0])
    assert {t for _, t in starts} == set(range(6))  # the first and the last start too
    assert {e for e, _ in starts} == set(range(12))


def test_windows_follow_the_generator(episodes):
    one, two, other = (Windows(episodes, 3).sample(np.random.default_rng(s), 5) for s in (1, 1, 2))
    assert torch.equal(one.actions, two.actions)
    assert not torch.equal(one.actions, other.actions)


def test_a_window_as_long_as_an_episode_fits_and_a_longer_one_is_refused(episodes):
    assert Windows(episodes, 9).sample(np.random.default_rng(0), 2).actions.shape == (2, 8, 2)
    with pytest.raises(InvalidInputError, match="10 frames does not fit episodes of 9"):
        Windows(episodes, 10)


def test_split_shares_nothing(episodes):
    training, held = split(episodes, 0.25)
    assert (len(training), len(held)) == (9, 3)
    assert not set(training.seeds) & set(held.seeds)
    for share in (0.0, 0.01, 1.0):
        with pytest.raises(InvalidInputError, match="cannot be split"):
            split(episodes, share)
