"""Correlated noise and random targets cover the action space and the joints."""

from __future__ import annotations

import numpy as np

from envs.exploration import OrnsteinUhlenbeck, TargetSeeker


def test_noise_is_bounded_spread_and_correlated():
    rng = np.random.default_rng(0)
    correlations, values = [], []
    for _ in range(200):
        noise = OrnsteinUhlenbeck(rng)
        series = np.array([noise(rng, np.zeros(2))[0] for _ in range(40)])
        values.append(series)
        correlations.append(np.corrcoef(series[:-1], series[1:])[0, 1])
    assert np.abs(values).max() <= 1
    assert abs(np.mean(values)) < 0.1
    assert np.std(values) > 0.4
    assert np.mean(correlations) > 0.4


def test_a_seeker_arrives_and_then_leaves_for_another_target():
    rng = np.random.default_rng(1)
    position, targets = np.zeros(2), []

    def draw(rng, qpos):
        targets.append(rng.uniform(-0.4, 0.4, size=2))
        return targets[-1]

    closest: list[float] = []
    for _ in range(20):
        seeker = TargetSeeker(rng, 0.07, draw, lambda target, qpos: target - qpos)
        for _ in range(40):
            position = position + 0.07 * np.clip(seeker(rng, position), -1, 1)
            closest += [np.inf] * (len(targets) - len(closest))
            closest[-1] = min(closest[-1], np.abs(targets[-1] - position).max())
    assert len(targets) > 60  # it leaves for others
    assert np.mean(np.array(closest) < 0.03) > 0.6  # most often after it came there
