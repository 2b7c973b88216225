"""Seeds of the searches of one episode: a function of the episode's seed and the plan's number alone."""

from __future__ import annotations

import numpy as np


def plan_seed(episode_seed: int, index: int) -> int:
    """The seed (0 <= seed < 2**63) of an episode's `index`-th plan, from 0; different plans get unrelated noise."""
    return int(np.random.SeedSequence([episode_seed, index]).generate_state(1, np.uint64)[0] >> np.uint64(1))
