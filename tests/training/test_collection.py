"""Collection: the same data however many processes, and a second call takes up."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from mstar_plan.errors import ConfigError, InvalidInputError
from mstar_plan.training.collect_worker import ShardJob, collect_shard
from mstar_plan.training.collection import CollectConfig, collect
from mstar_plan.training.shards import data_hash, read_episodes, read_shard


@pytest.fixture
def config(tmp_path):
    return CollectConfig(env="reach", out=tmp_path / "data", episodes=5, steps=4, seed=3, shard_episodes=2, processes=2)


@pytest.mark.render
def test_collect_then_take_up_then_nothing(config):
    folder = collect(config)
    paths = sorted(folder.glob("shard-*.npz"))
    assert [len(read_shard(path)) for path in paths] == [2, 2, 1]
    episodes = read_episodes(folder)
    assert episodes.frames.shape == (5, 5, 64, 64, 3)
    assert episodes.meta["env"] == "envs:mstar/Reach-v0"
    assert episodes.action.names == ("shoulder", "elbow")
    assert len({frame.tobytes() for frame in episodes.frames[:, 0]}) == 5
    assert np.abs(episodes.actions).max() <= 1
    before, stamp = data_hash(episodes), paths[0].stat().st_mtime_ns
    paths[1].unlink()
    assert collect(dataclasses.replace(config, processes=1)) == folder
    assert data_hash(read_episodes(folder)) == before
    assert paths[0].stat().st_mtime_ns == stamp
    with pytest.raises(InvalidInputError, match="choose another out="):
        collect(dataclasses.replace(config, seed=4))


@pytest.mark.render
def test_a_shard_is_a_function_of_its_job(tmp_path):
    hashes = []
    for seed, first in ((0, 0), (0, 0), (1, 0), (0, 7)):
        path = tmp_path / "shard.npz"
        job = ShardJob("envs:mstar/Reach-v0", path, seed, first, episodes=1, steps=3)
        assert collect_shard(job) == 4
        hashes.append(data_hash(read_shard(path)))
    assert hashes[0] == hashes[1]
    assert len(set(hashes)) == 3


def test_shards_of_unknown_origin_are_refused(config):
    config.folder.mkdir()
    (config.folder / "shard-00000.npz").write_bytes(b"")
    with pytest.raises(InvalidInputError, match=r"shards but no collection\.json"):
        collect(config)


def test_bad_settings_are_refused():
    with pytest.raises(ConfigError, match="did you mean 'reach'"):
        CollectConfig(env="raech")
    for bad in ({"episodes": 0}, {"steps": 0}, {"seed": -1}, {"processes": -1}):
        with pytest.raises(ConfigError, match=next(iter(bad))):
            CollectConfig(**bad)
    assert str(CollectConfig(env="push", episodes=7, seed=2).folder) == "data/push-s2-7x40"
