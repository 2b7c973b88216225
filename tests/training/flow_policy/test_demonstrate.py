"""The planner demonstrates: real episodes, solved, the same for the same seed, and taken up where they were left."""

from __future__ import annotations

from dataclasses import replace

import gymnasium
import numpy as np
import pytest

from mstar_plan.errors import ConfigError, InvalidInputError
from mstar_plan.rollout.cem import CEMConfig
from mstar_plan.training.flow_policy.demonstrate import (
    FIRST_SEED,
    DemonstrationConfig,
    DemonstrationJob,
    demonstrate,
    write_shard,
)
from mstar_plan.training.flow_policy.demonstrations import read_demonstrations

CONFIG = DemonstrationConfig(
    episodes=4,
    steps=20,
    noisy=0.5,
    noise=0.3,
    planner=CEMConfig(samples=32, iterations=2, horizon=10),
    shard_episodes=2,
)


@pytest.fixture(scope="module")
def shard(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shard")
    job = DemonstrationJob("reach", folder / "shard-00000.npz", 0, 0, 4, CONFIG)
    return write_shard(job), read_demonstrations(folder)


@pytest.mark.render
def test_the_expert_solves_its_episodes(shard):
    solved, episodes = shard
    assert solved >= 3
    assert episodes.frames.shape == (4, 21, 64, 64, 3)
    assert episodes.actions.shape == (4, 20, 2)
    assert np.abs(episodes.actions).max() <= 1
    assert episodes.seeds.tolist() == [FIRST_SEED + i for i in range(4)]
    assert episodes.action.names == ("shoulder", "elbow")


@pytest.mark.render
def test_frames_and_goals_are_those_of_the_seeds(shard):
    env = gymnasium.make("envs:mstar/Reach-v0")
    for i in (0, 3):
        observation, _ = env.reset(seed=int(shard[1].seeds[i]))
        np.testing.assert_array_equal(observation["image"], shard[1].frames[i, 0])
        np.testing.assert_array_equal(observation["goal_image"], shard[1].goals[i])
    env.close()


@pytest.mark.render
def test_noise_is_executed_but_not_shown(shard, tmp_path):
    """In an episode without noise what is shown leads to what is seen; in one with noise it does not."""
    env = gymnasium.make("envs:mstar/Reach-v0")
    same = []
    for i in range(4):
        env.reset(seed=int(shard[1].seeds[i]))
        for action in shard[1].actions[i, :3]:
            observation, *_ = env.step(action)
        same.append(np.array_equal(observation["image"], shard[1].frames[i, 3]))
    env.close()
    assert sorted(set(same)) == [False, True]


@pytest.mark.render
@pytest.mark.slow
def test_a_collection_is_taken_up_and_does_not_depend_on_how_it_is_cut(shard, tmp_path):
    folder = demonstrate("reach", tmp_path / "all", replace(CONFIG, processes=2))
    assert len(list(folder.glob("shard-*.npz"))) == 2
    assert read_demonstrations(folder).digest() == shard[1].digest()
    (folder / "shard-00001.npz").unlink()
    kept = (folder / "shard-00000.npz").stat().st_mtime_ns
    demonstrate("reach", folder, replace(CONFIG, processes=1))
    assert (folder / "shard-00000.npz").stat().st_mtime_ns == kept
    assert read_demonstrations(folder).digest() == shard[1].digest()
    with pytest.raises(InvalidInputError, match="choose another"):
        demonstrate("reach", folder, replace(CONFIG, noise=0.1))


def test_settings_are_checked(tmp_path):
    for change in ({"episodes": 1}, {"steps": 0}, {"noise": -0.1}, {"noisy": 1.5}):
        with pytest.raises(ConfigError, match=next(iter(change))):
            DemonstrationConfig(**change)
    with pytest.raises(ConfigError, match="task is 'moon'"):
        demonstrate("moon", tmp_path, CONFIG)
