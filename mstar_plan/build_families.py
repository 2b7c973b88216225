"""Wires families: loads them by name, and gives each a worker of its own on the one runtime."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from mstar_plan.families.catalogue import load_family
from mstar_plan.families.servable import FamilyConfig, Servable
from mstar_plan.runtime.placement import Group, Placement
from mstar_plan.runtime.runtime import Runtime, RuntimeConfig


@dataclass(frozen=True, eq=False)
class LoadedFamily:
    """A family with what its worker needs.

    Attributes:
        servable: The family.
        group: Its worker.
    """

    servable: Servable
    group: Group


def load_families(configs: Mapping[str, FamilyConfig]) -> dict[str, LoadedFamily]:
    """Loads families.

    Args:
        configs: {name in the catalogue: how to load it}.

    Raises:
        NotFoundError: There is no such family.
        UnavailableError: A package or its weights are not installed.
        WeightsError: Its weights are damaged.
    """
    loaded: dict[str, LoadedFamily] = {}
    for name, config in configs.items():
        servable = load_family(name, config)
        threads = config.threads or servable.threads or cores()
        loaded[name] = LoadedFamily(servable, Group(config.device, threads))
    return loaded


def with_families(placement: Placement | None, families: Mapping[str, LoadedFamily]) -> Placement:
    """A placement, and a worker for each family: so that a sentence that is being written holds up no robot."""
    groups = dict(placement.groups) if placement is not None else {}
    table = dict(placement.table) if placement is not None else {}
    for name, family in families.items():
        own = Placement.single({name: family.servable.graph}, family.group)
        groups |= {f"family/{name}": own.groups["main"]}
        table |= dict.fromkeys(own.table, f"family/{name}")
    return Placement(groups, table)


@contextmanager
def running(
    name: str, config: FamilyConfig, runtime: RuntimeConfig | None = None
) -> Iterator[tuple[Servable, Runtime]]:
    """One family on a runtime of its own, for as long as the context is open.

    Raises:
        MStarError: As `load_families`.
    """
    loaded = load_families({name: config})
    servable = loaded[name].servable
    torch.set_num_threads(loaded[name].group.threads or 1)
    try:
        with Runtime({name: servable.graph}, placement=with_families(None, loaded), config=runtime) as made:
            yield servable, made
    finally:
        if servable.close is not None:
            servable.close()


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
