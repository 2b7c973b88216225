"""Ways to attend are chosen by name and device."""

from __future__ import annotations

import pytest

from mstar_plan.errors import ConfigError
from mstar_plan.runtime.generation.attention import way_to_attend
from mstar_plan.runtime.generation.flex_step import FlexStep
from mstar_plan.runtime.generation.kv_pool import KVPool, KVShape
from mstar_plan.runtime.generation.paged_step import GatheredStep, SlicedStep


@pytest.fixture
def pool() -> KVPool:
    return KVPool(KVShape(1, 1, 4), 32)


def test_a_cpu_slices(pool):
    assert way_to_attend("auto", pool) is SlicedStep
    assert way_to_attend("gathered", pool) is GatheredStep


def test_flex_needs_finite_places(pool):
    pool.store.fill_(float("nan"))
    assert way_to_attend("flex", pool) is FlexStep
    assert bool((pool.store == 0).all())


def test_unknown(pool):
    with pytest.raises(ConfigError, match="did you mean 'gathered'"):
        way_to_attend("gatherd", pool)
