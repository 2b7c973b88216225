"""Demonstrations on disk: episodes of an expert, each with the picture of its goal, as a folder of npz shards.

A shard holds E episodes of T steps:

    frames       [E, T+1, H_px, W_px, 3] uint8   frame t is what was seen before action t
    goals        [E, H_px, W_px, 3] uint8        what was to be reached
    actions      [E, T, A] float32               what the expert wanted to do, in the environment's units
    seeds        [E] int64                       `env.reset(seed=)` of each episode
    meta         JSON text                       schema, env, dt_s, action bounds, names and units
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mstar_plan.errors import InvalidInputError
from mstar_plan.training.shards import action_of
from mstar_plan.types import ActionSpec, FloatArray, ImageArray

SCHEMA = "mstar_plan.demonstrations/1"
ARRAYS = ("frames", "goals", "actions", "seeds")


@dataclass(frozen=True, eq=False)
class Demonstrations:
    """E episodes of T steps; shapes as in the module's schema.

    Attributes:
        frames: [E, T+1, H_px, W_px, 3] uint8.
        goals: [E, H_px, W_px, 3] uint8.
        actions: [E, T, A] float32.
        seeds: [E] int64.
        meta: Environment id, dt_s and action bounds.
    """

    frames: ImageArray
    goals: ImageArray
    actions: FloatArray
    seeds: npt.NDArray[np.int64]
    meta: dict[str, Any]

    def __len__(self) -> int:
        """E, the number of episodes."""
        return len(self.frames)

    @property
    def steps(self) -> int:
        """T, actions an episode."""
        return int(self.actions.shape[1])

    @property
    def action(self) -> ActionSpec:
        """What an action is, as the environment said."""
        return action_of(self.meta)

    def part(self, chosen: slice) -> Demonstrations:
        """The chosen episodes, as views."""
        return Demonstrations(**{name: getattr(self, name)[chosen] for name in ARRAYS}, meta=self.meta)

    def digest(self) -> str:
        """SHA-256 of what a policy learns from, however it was cut into shards."""
        found = hashlib.sha256(json.dumps(self.meta, sort_keys=True).encode())
        for name in ARRAYS[:3]:
            found.update(np.ascontiguousarray(getattr(self, name)).data)
        return found.hexdigest()


def write_demonstrations(path: Path, episodes: Demonstrations) -> None:
    """Writes one shard, whole or not at all."""
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        meta = json.dumps({"schema": SCHEMA, **episodes.meta}, sort_keys=True)
        np.savez_compressed(file, **{name: getattr(episodes, name) for name in ARRAYS}, meta=np.array(meta))
    partial.replace(path)


def read_demonstrations(folder: Path) -> Demonstrations:
    """Reads all shards of a folder.

    Raises:
        InvalidInputError: There are none, one is damaged, or they do not belong together.
    """
    paths = sorted(folder.glob("shard-*.npz"))
    shards = [_read_shard(path) for path in paths]
    if not shards:
        raise InvalidInputError(f"{folder} holds no shards; leave data out, and demonstrations are collected")
    for path, shard in zip(paths, shards, strict=True):
        if shard.meta != shards[0].meta or shard.actions.shape[1:] != shards[0].actions.shape[1:]:
            raise InvalidInputError(f"{path} is of another environment or length than the rest; use a folder for each")
    return _joined(shards)


def _joined(shards: Sequence[Demonstrations]) -> Demonstrations:
    arrays = {name: np.concatenate([getattr(shard, name) for shard in shards]) for name in ARRAYS}
    return Demonstrations(**arrays, meta=shards[0].meta)


def _read_shard(path: Path) -> Demonstrations:
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            meta = json.loads(str(file["meta"]))
            arrays = {name: file[name] for name in ARRAYS}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise InvalidInputError(f"{path} is no shard of demonstrations ({error}); delete it and train anew") from error
    if not isinstance(meta, dict) or meta.pop("schema", None) != SCHEMA:
        raise InvalidInputError(f"{path} is not of schema {SCHEMA!r}; delete it and train anew")
    episodes = Demonstrations(**arrays, meta=meta)
    frames, goals, actions = episodes.frames, episodes.goals, episodes.actions
    fits = (
        frames.dtype == goals.dtype == np.uint8
        and frames.ndim == 5
        and actions.ndim == 3
        and frames.shape[:2] == (len(actions), actions.shape[1] + 1)
        and goals.shape == (len(actions), *frames.shape[2:])
        and len(episodes.seeds) == len(actions)
        and bool(np.isfinite(actions).all())
    )
    if not fits:
        shapes = {name: getattr(episodes, name).shape for name in ARRAYS}
        raise InvalidInputError(f"{path} does not keep the schema {SCHEMA!r}: {shapes}; delete it and train anew")
    return episodes
