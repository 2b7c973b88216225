"""Shards: what is written is read, what is damaged is refused, and the hash is of the content."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from mstar_plan.errors import InvalidInputError
from mstar_plan.training.shards import ARRAYS, data_hash, read_episodes, read_shard, write_shard


def test_round_trip(tmp_path, episodes):
    path = tmp_path / "shard-00000.npz"
    write_shard(path, episodes)
    back = read_shard(path)
    assert back.meta == episodes.meta
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(back, name), getattr(episodes, name))
        assert getattr(back, name).dtype == getattr(episodes, name).dtype
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    assert back.action.names == ("x", "y")
    assert back.action.dt_s == 0.1
    assert (len(back), back.steps) == (12, 8)


def test_a_folder_is_its_shards_in_order_and_hashes_alike(tmp_path, episodes):
    write_shard(tmp_path / "shard-00001.npz", episodes.subset(range(5, 12)))
    write_shard(tmp_path / "shard-00000.npz", episodes.subset(range(5)))
    back = read_episodes(tmp_path)
    np.testing.assert_array_equal(back.seeds, np.arange(12))
    assert data_hash(back) == data_hash(episodes)


def test_the_hash_sees_frames_actions_order_and_meta(episodes):
    known = {data_hash(episodes)}
    frames, actions = episodes.frames.copy(), episodes.actions.copy()
    frames[3, 2, 1, 1, 0] ^= 1
    actions[3, 2, 1] += 1e-3
    for changed in (
        dataclasses.replace(episodes, frames=frames),
        dataclasses.replace(episodes, actions=actions),
        episodes.subset(range(11, -1, -1)),
        dataclasses.replace(episodes, meta={**episodes.meta, "dt_s": 0.2}),
    ):
        assert data_hash(changed) not in known
        known.add(data_hash(changed))


def test_damage_is_refused(tmp_path, episodes):
    path = tmp_path / "shard-00000.npz"
    with pytest.raises(InvalidInputError, match="holds no shards; make them with"):
        read_episodes(tmp_path)
    write_shard(path, episodes)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(InvalidInputError, match="delete it and collect again"):
        read_episodes(tmp_path)
    np.savez(path, frames=np.zeros(3))
    with pytest.raises(InvalidInputError, match="not an episode shard"):
        read_shard(path)


def test_arrays_that_do_not_fit_are_refused(tmp_path, episodes):
    path = tmp_path / "shard-00000.npz"
    nan = episodes.actions.copy()
    nan[0, 0, 0] = np.nan
    for changes in ({"actions": episodes.actions[:, :-1]}, {"actions": nan}, {"frames": episodes.frames / 255.0}):
        write_shard(path, dataclasses.replace(episodes, **changes))
        with pytest.raises(InvalidInputError, match="does not keep the schema"):
            read_shard(path)


def test_mixed_folders_are_refused(tmp_path, episodes):
    write_shard(tmp_path / "shard-00000.npz", episodes)
    write_shard(tmp_path / "shard-00001.npz", dataclasses.replace(episodes, meta={**episodes.meta, "env": "other"}))
    with pytest.raises(InvalidInputError, match="another environment"):
        read_episodes(tmp_path)
