"""Demonstrations go to disk and come back; what is not theirs is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from toy_demonstrations import META, toy_demonstrations

from mstar_plan.errors import InvalidInputError
from mstar_plan.training.flow_policy.demonstrations import (
    ARRAYS,
    Demonstrations,
    read_demonstrations,
    write_demonstrations,
)


def test_shards_come_back_in_order(tmp_path):
    first, second = toy_demonstrations(3), toy_demonstrations(2, seed=1)
    write_demonstrations(tmp_path / "shard-00001.npz", second)
    write_demonstrations(tmp_path / "shard-00000.npz", first)
    found = read_demonstrations(tmp_path)
    for name in ARRAYS:
        np.testing.assert_array_equal(
            getattr(found, name), np.concatenate([getattr(first, name), getattr(second, name)])
        )
    assert (len(found), found.steps, found.action.size, found.action.dt_s) == (5, 6, 2, 0.1)
    assert found.meta == META
    assert list(tmp_path.glob("*.partial")) == []


def test_the_digest_is_of_what_is_learned_from(tmp_path):
    whole = toy_demonstrations(4)
    write_demonstrations(tmp_path / "shard-00000.npz", whole.part(slice(0, 1)))
    write_demonstrations(tmp_path / "shard-00001.npz", whole.part(slice(1, None)))
    assert read_demonstrations(tmp_path).digest() == whole.digest()
    assert replace(whole, actions=whole.actions + 1).digest() != whole.digest()
    assert replace(whole, goals=255 - whole.goals).digest() != whole.digest()


def test_there_must_be_some(tmp_path):
    with pytest.raises(InvalidInputError, match="no shards"):
        read_demonstrations(tmp_path)


def damaged(episodes: Demonstrations, what: str) -> Demonstrations:
    return {
        "frames": replace(episodes, frames=episodes.frames[:, 1:]),
        "goals": replace(episodes, goals=episodes.goals[:, 1:]),
        "dtype": replace(episodes, goals=episodes.goals.astype(np.float32)),
        "actions": replace(episodes, actions=episodes.actions * np.nan),
        "seeds": replace(episodes, seeds=episodes.seeds[1:]),
    }[what]


@pytest.mark.parametrize("what", ["frames", "goals", "dtype", "actions", "seeds"])
def test_shards_that_break_the_schema(tmp_path, what):
    write_demonstrations(tmp_path / "shard-00000.npz", damaged(toy_demonstrations(2), what))
    with pytest.raises(InvalidInputError, match="does not keep the schema"):
        read_demonstrations(tmp_path)


def test_files_that_are_none(tmp_path):
    path = tmp_path / "shard-00000.npz"
    path.write_bytes(b"PK no zip")
    with pytest.raises(InvalidInputError, match="no shard"):
        read_demonstrations(tmp_path)
    np.savez(path, **{name: np.zeros(1) for name in ARRAYS}, meta=np.array('{"schema": "other/1"}'))
    with pytest.raises(InvalidInputError, match="not of schema"):
        read_demonstrations(tmp_path)
    np.savez(path, frames=np.array([object()], dtype=object))  # a pickle is never read
    with pytest.raises(InvalidInputError, match="no shard"):
        read_demonstrations(tmp_path)


@pytest.mark.parametrize("other", [{"steps": 5}, {}])
def test_shards_that_do_not_belong_together(tmp_path, other):
    strange = toy_demonstrations(2, **other)
    strange = strange if other else replace(strange, meta={**META, "env": "else"})
    write_demonstrations(tmp_path / "shard-00000.npz", toy_demonstrations(2))
    write_demonstrations(tmp_path / "shard-00001.npz", strange)
    with pytest.raises(InvalidInputError, match="another environment or length"):
        read_demonstrations(tmp_path)
