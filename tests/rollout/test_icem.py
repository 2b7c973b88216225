"""iCEM has fewer candidates in later iterations, by a rule of the count alone."""

import pytest

from mstar_plan.errors import ConfigError
from mstar_plan.rollout.icem import ICEM, ICEMConfig


def counts(planner: ICEM, samples: int, iterations: int) -> list[int]:
    found = [samples]
    for _ in range(iterations - 1):
        found.append(planner.next_samples(found[-1]))
    return found


def test_candidates_decay_to_twice_the_elites() -> None:
    planner = ICEM(ICEMConfig(samples=128, elites=10, decay=2.0))
    assert counts(planner, 128, 6) == [128, 64, 32, 20, 20, 20]
    assert not planner.fixed_samples


def test_candidates_never_grow() -> None:
    assert counts(ICEM(ICEMConfig(elites=10, carry=3)), 12, 3) == [12, 12, 12]


def test_no_decay_is_fixed() -> None:
    planner = ICEM(ICEMConfig(decay=1.0))
    assert planner.fixed_samples
    assert counts(planner, 50, 3) == [50, 50, 50]


def test_noise_is_of_a_power_spectrum_by_default() -> None:
    assert ICEMConfig().noise.colour == "power"


def test_decay_below_one_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"decay is 0\.5"):
        ICEMConfig(decay=0.5)
