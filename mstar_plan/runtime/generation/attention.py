"""The ways in which paged sequences attend, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Rows

from mstar_plan.errors import ConfigError, did_you_mean
from mstar_plan.runtime.generation.flex_step import FlexStep
from mstar_plan.runtime.generation.kv_pool import KVPool
from mstar_plan.runtime.generation.paged_step import GatheredStep, PagedStep, SlicedStep
from mstar_plan.runtime.generation.sequence import Sequence

MakeStep = Callable[[KVPool, Rows[tuple[Sequence, int]]], PagedStep]
WAYS: Mapping[str, MakeStep] = {"sliced": SlicedStep, "gathered": GatheredStep, "flex": FlexStep}


def way_to_attend(name: str, pool: KVPool) -> MakeStep:
    """The way of a name; "auto": sliced on a CPU, gathered elsewhere.

    Raises:
        ConfigError: There is no such way.
    """
    if name == "auto":
        name = "sliced" if pool.store.device.type == "cpu" else "gathered"
    if name not in WAYS:
        raise ConfigError(f"attention is {name!r}{did_you_mean(name, ['auto', *WAYS])}", field="attention")
    if name == "flex":
        pool.store.zero_()  # it multiplies by zero what nobody may see
    return WAYS[name]
