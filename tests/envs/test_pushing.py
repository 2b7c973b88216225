"""The scripted pusher goes round the puck without touching it, and pushes it to many places."""

from __future__ import annotations

import numpy as np
import pytest

from envs.pushing import CONTACT_M, DETOUR_M, STANDOFF_M, ScriptedPusher, _waypoint


@pytest.mark.parametrize("angle", np.linspace(-3, 3, 13))
def test_the_way_round_ends_behind_the_puck_and_keeps_clear_of_it(angle):
    heading = np.array([1.0, 0.0])
    behind = 0.15 * np.array([np.cos(angle), np.sin(angle)])
    for _ in range(60):
        step = _waypoint(behind, heading) - behind
        behind = behind + step * min(1.0, 0.01 / max(np.linalg.norm(step), 1e-9))
        assert np.linalg.norm(behind) > CONTACT_M
    assert np.allclose(behind, [-STANDOFF_M, 0.0], atol=0.005)
    assert DETOUR_M > STANDOFF_M > CONTACT_M


@pytest.mark.usefixtures("blind")
def test_pushing_moves_the_puck_in_a_good_share_of_steps_and_all_over(make):
    env = make("Push")
    task, rng, moved, places = env.unwrapped, np.random.default_rng(0), [], []
    for seed in range(40):
        observation, _ = env.reset(seed=seed)
        policy = ScriptedPusher(rng, 0.03)
        for _ in range(40):
            puck = observation["achieved_goal"]
            observation, *_ = env.step(np.clip(policy(rng, task.data.qpos.copy()), -1, 1).astype(np.float32))
            moved.append(np.linalg.norm(observation["achieved_goal"] - puck) > 0.002)
        places.append(observation["achieved_goal"])
    assert np.mean(moved) > 0.35
    assert np.ptp(places, axis=0).min() > 0.25
