"""A goal's picture is encoded once, and found again by its content."""

import numpy as np
import pytest
from planning_worlds import request, solver_for

from mstar_plan.models.toy import ToyWorld
from mstar_plan.rollout.cem import CEMConfig
from mstar_plan.rollout.goal_cache import GoalCache

FAST = CEMConfig(samples=24, iterations=2, horizon=4, elites=6, carry=3)


def picture(value: int) -> np.ndarray:
    return np.full((4, 4, 3), value, np.uint8)


def test_equal_pictures_are_one_goal() -> None:
    cache = GoalCache()
    assert cache.find(picture(1)) is None
    cache.keep(picture(1), np.ones((1, 2), np.float32))
    assert cache.find(picture(1)) is not None
    assert cache.find(picture(2)) is None
    assert cache.find(picture(1).reshape(2, 8, 3)) is None  # the same bytes, another picture


def test_the_goal_that_was_not_asked_for_longest_goes_first() -> None:
    cache = GoalCache(most=2)
    for value in (1, 2):
        cache.keep(picture(value), np.full((1, 2), value, np.float32))
    cache.find(picture(1))
    cache.keep(picture(3), np.zeros((1, 2), np.float32))
    assert [cache.find(picture(value)) is not None for value in (1, 2, 3)] == [True, False, True]


class Counting(ToyWorld):
    """The toy that counts the frames that it encodes."""

    encoded = 0

    def encode(self, frames):
        self.encoded += len(frames)
        return super().encode(frames)


@pytest.mark.parametrize("deterministic", [False, True])
def test_the_second_plan_towards_a_goal_encodes_the_frame_alone(deterministic: bool) -> None:
    model = Counting()
    asked = request().but(deterministic=deterministic)
    with solver_for(model, FAST) as solver:
        first = solver.solve(asked)
        assert model.encoded == 2
        again = solver.solve(asked)
        assert model.encoded == 3
        assert solver.submit(asked).result().cost == pytest.approx(first.cost, abs=1e-6)
    if deterministic:
        assert again.actions.tobytes() == first.actions.tobytes()
    else:
        np.testing.assert_allclose(again.actions, first.actions, atol=1e-5)
