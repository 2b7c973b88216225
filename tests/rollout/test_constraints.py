"""The limits hold for every candidate, and what keeps them already is left alone."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mstar_plan.rollout.constraints import SearchSpace, limit_rate, worst_violation
from mstar_plan.types import ActionSpec

SPEC = ActionSpec(
    low=np.array([-1.0, 0.0]), high=np.array([3.0, 0.5]), dt_s=0.1, max_delta=np.array([0.5, 0.02], np.float32)
)
FREE = ActionSpec(low=SPEC.low, high=SPEC.high, dt_s=0.1)


def noisy(seed: int, horizon: int, scale: float = 2.0) -> torch.Tensor:
    return scale * torch.randn(2, 5, horizon, 2, generator=torch.Generator().manual_seed(seed))


@given(seed=st.integers(0, 10**6), horizon=st.integers(1, 40), with_last=st.booleans(), scale=st.floats(0.01, 50))
@settings(max_examples=60, deadline=None)
def test_projected_candidates_are_inside_all_limits(seed: int, horizon: int, with_last: bool, scale: float) -> None:
    space = SearchSpace(SPEC)
    units = np.random.default_rng(seed).uniform(SPEC.low, SPEC.high, (2, 2)).astype(np.float32)
    last = space.from_units(torch.from_numpy(units)) if with_last else None
    actions = space.to_units(space.project(noisy(seed, horizon, scale), last)).numpy()
    for b in range(2):
        for k in range(5):
            assert worst_violation(actions[b, k], SPEC, units[b] if with_last else None) == ""


def test_projection_changes_nothing_that_is_inside() -> None:
    space = SearchSpace(SPEC)
    once = space.project(noisy(1, 12))
    torch.testing.assert_close(space.project(once), once, rtol=0, atol=1e-6)
    inside = noisy(2, 12).clamp(-1, 1)
    assert torch.equal(SearchSpace(FREE).project(inside), inside)


def test_rate_projection_is_the_nearest_in_the_largest_change() -> None:
    # A step of 1 under a limit of 0.2: the best any sequence can do is to be off by (1 - 0.2) / 2 at the jump.
    jump = torch.tensor([0.0, 0.0, 1.0, 1.0]).reshape(1, 1, 4, 1)
    limited = limit_rate(jump, torch.tensor([0.2]))
    assert (limited - jump).abs().max().item() == pytest.approx(0.4)
    assert limited.diff(dim=2).abs().max().item() <= 0.2 + 1e-6


def test_rate_projection_matches_the_envelopes_written_out() -> None:
    x = noisy(4, 9)[0, :, :, 0].double().numpy()
    away = 0.1 * np.abs(np.arange(9)[:, None] - np.arange(9)[None])
    expected = ((x[:, None] + away).min(2) + (x[:, None] - away).max(2)) / 2
    limited = limit_rate(noisy(4, 9)[:1, :, :, :1], torch.tensor([0.1]))
    np.testing.assert_allclose(limited[0, :, :, 0], expected, atol=1e-5)


def test_rows_and_candidates_do_not_touch_each_other() -> None:
    space, x, last = SearchSpace(SPEC), noisy(3, 6), torch.tensor([[0.1, 0.2], [-0.9, 0.9]])
    together = space.project(x, last)
    for b in range(2):
        assert torch.equal(space.project(x[b : b + 1], last[b : b + 1]), together[b : b + 1])
        assert torch.equal(space.project(x[:, :2], last), together[:, :2])


def test_units_go_there_and_back() -> None:
    space = SearchSpace(FREE)
    assert space.to_units(torch.tensor([-1.0, 1.0])).tolist() == [-1.0, 0.5]
    actions = torch.tensor([[0.3, 0.1], [2.9, 0.49]])
    torch.testing.assert_close(space.to_units(space.from_units(actions)), actions)
    unit = SearchSpace(ActionSpec(low=-np.ones(2), high=np.ones(2), dt_s=0.1))
    assert unit.to_units(actions) is actions


@pytest.mark.parametrize(
    ("actions", "last", "words"),
    [
        ([[3.1, 0.1]], None, "outside the bounds"),
        ([[0.0, -0.01]], None, "outside the bounds"),
        ([[0.0, 0.1], [0.6, 0.1]], None, "max_delta"),
        ([[0.0, 0.1]], [0.0, 0.2], "max_delta"),
        ([[0.0, 0.1], [0.5, 0.12]], [0.0, 0.1], ""),
    ],
)
def test_violations_are_named(actions: list[list[float]], last: list[float] | None, words: str) -> None:
    previous = None if last is None else np.array(last, np.float32)
    said = worst_violation(np.array(actions, np.float32), SPEC, previous)
    assert words in said
    assert bool(words) == bool(said)


def test_another_device_gets_one_copy() -> None:
    space = SearchSpace(SPEC)
    assert space.to(torch.device("cpu")) is space
    assert space.to(torch.device("meta")) is space.to(torch.device("meta"))
