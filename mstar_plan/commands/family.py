"""What the commands that run one family in this process have in common."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mstar_plan.build import pick_device
from mstar_plan.build_families import running
from mstar_plan.errors import ConfigError
from mstar_plan.families.servable import FamilyConfig, Servable
from mstar_plan.runtime.runtime import Runtime


@dataclass(frozen=True, kw_only=True)
class OneFamily:
    """Which family to run, and how.

    Attributes:
        model: Its name in the catalogue.
        device: Torch device; auto takes a GPU if there is one.
        dtype: Of its weights, where it can choose.
        threads: Torch threads of one operator; 0: what it is fastest with.
        weights: File or folder to use in the place of the packaged one.
    """

    model: str
    device: str = "auto"
    dtype: Literal["float32", "bfloat16"] = "float32"
    threads: int = 0
    weights: Path | None = None


@contextmanager
def opened(config: OneFamily, ability: str) -> Iterator[tuple[Servable, Runtime]]:
    """The family on a runtime of its own.

    Args:
        config: Which.
        ability: What it must be able to do, as `Servable` calls it.

    Raises:
        ConfigError: It is not able to.
    """
    made = FamilyConfig(
        device=pick_device(config.device), dtype=config.dtype, threads=config.threads, weights=config.weights
    )
    with running(config.model, made) as (servable, runtime):
        if getattr(servable, ability) is None:
            able = ", ".join(servable.abilities) or "none of them"
            raise ConfigError(f"model {config.model!r} has no {ability}, but {able}; choose another", field="model")
        yield servable, runtime
