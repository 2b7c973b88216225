"""Episodes of the toy world, whose dynamics are known: small enough to train on in a second."""

from __future__ import annotations

import numpy as np
import pytest

from mstar_plan.models.jepa import JepaConfig
from mstar_plan.models.toy import DT_S, render
from mstar_plan.training.shards import Episodes

META = {
    "env": "toy",
    "dt_s": DT_S,
    "success_distance_m": 0.05,
    "action": {"low": [-1.0, -1.0], "high": [1.0, 1.0], "names": ["x", "y"], "units": ["1/s", "1/s"]},
}


def toy_episodes(count: int = 12, steps: int = 8, seed: int = 0) -> Episodes:
    """A point that drifts, drawn at 32 x 32; actions that would leave the picture are turned round."""
    rng = np.random.default_rng(seed)
    places, actions = np.zeros((count, steps + 1, 2)), rng.uniform(-1, 1, (count, steps, 2)).astype(np.float32)
    places[:, 0] = rng.uniform(-0.8, 0.8, (count, 2))
    for t in range(steps):
        out = np.abs(places[:, t] + DT_S * actions[:, t]) > 1
        actions[:, t][out] *= -1
        places[:, t + 1] = places[:, t] + DT_S * actions[:, t]
    frames = np.stack([[render(place)[::2, ::2] for place in episode] for episode in places])
    return Episodes(frames, actions, places.astype(np.float32), places, np.arange(count), META)


@pytest.fixture(scope="session")
def episodes() -> Episodes:
    """Twelve episodes of eight steps."""
    return toy_episodes()


@pytest.fixture(scope="session")
def many_episodes() -> Episodes:
    """Enough to learn the world from."""
    return toy_episodes(200, 10)


@pytest.fixture
def small_model() -> JepaConfig:
    """A model for the 32 x 32 frames."""
    return JepaConfig(image_size=32, patch=8, width=16, blocks=1, hidden=32, latent=6, predictor=(32,), head=(16, 4))
