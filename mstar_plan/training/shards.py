"""Episodes on disk: a folder of compressed npz shards with one schema, and a hash of what they hold.

A shard holds E episodes of T steps:

    frames       [E, T+1, H_px, W_px, 3] uint8   camera images; frame t is what was seen before action t
    actions      [E, T, A] float32               in the environment's units
    states       [E, T+1, P] float32             the robot's own proprioception
    positions    [E, T+1, G] float64             task position in metres: for measuring only, no loss sees it
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
from mstar_plan.types import ActionSpec, FloatArray, ImageArray

SCHEMA = "mstar_plan.episodes/1"
ARRAYS = ("frames", "actions", "states", "positions", "seeds")


@dataclass(frozen=True, eq=False)
class Episodes:
    """E episodes of T steps; shapes as in the module's schema.

    Attributes:
        frames: [E, T+1, H_px, W_px, 3] uint8.
        actions: [E, T, A] float32.
        states: [E, T+1, P] float32.
        positions: [E, T+1, G] float64, metres.
        seeds: [E] int64.
        meta: Environment id, dt_s and action bounds.
    """

    frames: ImageArray
    actions: FloatArray
    states: FloatArray
    positions: npt.NDArray[np.float64]
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

    def subset(self, index: Sequence[int] | npt.NDArray[np.int64]) -> Episodes:
        """Returns the chosen episodes, copied."""
        arrays = {name: getattr(self, name)[np.asarray(index, dtype=np.int64)] for name in ARRAYS}
        return Episodes(**arrays, meta=self.meta)


def action_of(meta: dict[str, Any]) -> ActionSpec:
    """Returns what an action is, from the metadata of episodes."""
    return ActionSpec(**meta["action"], dt_s=meta["dt_s"])


def write_shard(path: Path, episodes: Episodes) -> None:
    """Writes one shard, whole or not at all."""
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        arrays = {name: getattr(episodes, name) for name in ARRAYS}
        meta = json.dumps({"schema": SCHEMA, **episodes.meta}, sort_keys=True)
        np.savez_compressed(file, **arrays, meta=np.array(meta))
    partial.replace(path)


def read_shard(path: Path) -> Episodes:
    """Reads one shard.

    Raises:
        InvalidInputError: The file is absent, damaged or of another schema.
    """
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            meta = json.loads(str(file["meta"]))
            arrays = {name: file[name] for name in ARRAYS}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise InvalidInputError(f"{path} is not an episode shard ({error}); delete it and collect again") from error
    if meta.pop("schema", None) != SCHEMA:
        raise InvalidInputError(f"{path} is not of schema {SCHEMA!r}; delete it and collect again")
    episodes = Episodes(**arrays, meta=meta)
    _check(path, episodes)
    return episodes


def shard_paths(folder: Path) -> list[Path]:
    """Returns the shards of a folder in their order."""
    return sorted(folder.glob("shard-*.npz"))


def read_episodes(folder: Path) -> Episodes:
    """Reads all shards of a folder.

    Raises:
        InvalidInputError: There are none, one is damaged, or they do not belong together.
    """
    shards = [read_shard(path) for path in shard_paths(folder)]
    if not shards:
        raise InvalidInputError(f"{folder} holds no shards; make them with: mstar-plan collect env=... out={folder}")
    for path, shard in zip(shard_paths(folder), shards, strict=True):
        if shard.meta != shards[0].meta or shard.steps != shards[0].steps:
            raise InvalidInputError(f"{path} is of another environment or length than the rest; use a folder for each")
    return Episodes(
        **{name: np.concatenate([getattr(shard, name) for shard in shards]) for name in ARRAYS}, meta=shards[0].meta
    )


def data_hash(episodes: Episodes) -> str:
    """Returns the SHA-256 of what the models see (frames, actions, order), however it was cut into shards."""
    digest = hashlib.sha256(json.dumps(episodes.meta, sort_keys=True).encode())
    digest.update(np.ascontiguousarray(episodes.frames).data)
    digest.update(np.ascontiguousarray(episodes.actions).data)
    return digest.hexdigest()


def _check(path: Path, episodes: Episodes) -> None:
    count, steps = len(episodes), episodes.actions.shape[1]
    fits = (
        episodes.frames.dtype == np.uint8
        and episodes.frames.ndim == 5
        and all(getattr(episodes, name).shape[:2] == (count, steps + 1) for name in ("frames", "states", "positions"))
        and episodes.actions.shape[0] == len(episodes.seeds) == count
        and bool(np.isfinite(episodes.actions).all())
    )
    if not fits:
        shapes = {name: getattr(episodes, name).shape for name in ARRAYS}
        raise InvalidInputError(f"{path} does not keep the schema {SCHEMA!r}: {shapes}; delete it and collect again")
