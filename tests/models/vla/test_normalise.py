"""Normalisers: each rule against numbers worked out by hand, inverses, and statistics that cannot be used."""

from __future__ import annotations

import pytest
import torch

from mstar_plan.errors import ConfigError, InvalidInputError
from mstar_plan.models.vla.normalise import STATISTICS, Normaliser

X = torch.tensor([[0.0, 10.0, 3.0], [4.0, -2.0, 5.0]])
LOW, HIGH = torch.tensor([-2.0, 0.0, 1.0]), torch.tensor([2.0, 5.0, 9.0])


def made(rule: str, low: torch.Tensor = LOW, high: torch.Tensor = HIGH, **more) -> Normaliser:
    names = STATISTICS[rule]
    return Normaliser(rule=rule, stats={names[0]: low, names[1]: high}, **more)


def test_mean_std_by_hand() -> None:
    normaliser = made("mean_std", torch.tensor([1.0, 0.0, 3.0]), torch.tensor([2.0, 5.0, 0.5]))
    assert torch.allclose(normaliser.normalise(X), torch.tensor([[-0.5, 2.0, 0.0], [1.5, -0.4, 4.0]]))
    assert torch.allclose(normaliser.unnormalise(torch.ones(3)), torch.tensor([3.0, 5.0, 3.5]))


@pytest.mark.parametrize("rule", ["min_max", "quantiles", "quantile10"])
def test_ranges_by_hand(rule: str) -> None:
    normaliser = made(rule)
    assert torch.allclose(normaliser.normalise(X), torch.tensor([[0.0, 3.0, -0.5], [2.0, -1.8, 0.0]]))
    assert torch.equal(normaliser.unnormalise(-torch.ones(3)), LOW)
    assert torch.equal(normaliser.unnormalise(torch.ones(3)), HIGH)


@pytest.mark.parametrize("rule", STATISTICS)
def test_there_and_back(rule: str) -> None:
    normaliser = made(rule, torch.rand(3), torch.rand(3) + 1.5)
    x = torch.randn(2, 4, 3)
    assert torch.allclose(normaliser.unnormalise(normaliser.normalise(x)), x, atol=1e-5)
    assert not torch.allclose(normaliser.normalise(x), x, atol=1e-2)


def test_epsilon_stands_where_the_published_code_has_it() -> None:
    zero = torch.zeros(3)
    flat = made("mean_std", LOW, zero, eps=0.5)
    assert torch.equal(flat.normalise(LOW + 1), torch.full((3,), 2.0))  # added to the spread
    assert torch.equal(flat.unnormalise(torch.full((3,), 7.0)), LOW)  # but not on the way back
    assert torch.equal(made("mean_std", zero, torch.ones(3), eps=0.25).normalise(torch.ones(3)), torch.full((3,), 0.8))
    for rule in ("min_max", "quantiles", "quantile10"):
        same = made(rule, LOW, LOW, eps=0.5)
        assert torch.equal(same.normalise(LOW), -torch.ones(3))
        assert torch.equal(same.normalise(LOW + 0.5), torch.ones(3))
        assert torch.equal(same.unnormalise(torch.ones(3)), LOW + 0.5)
        assert torch.equal(made(rule, zero, torch.ones(3), eps=0.5).normalise(torch.ones(3)), torch.ones(3))


def test_identity_takes_everything() -> None:
    normaliser = Normaliser()
    assert normaliser.normalise(X) is X
    assert normaliser.unnormalise(X) is X
    assert normaliser.width is None
    assert made("min_max").width == 3


def test_pictures_are_normalised_by_channel() -> None:
    normaliser = made("mean_std", torch.tensor([1.0, 2.0, 3.0]).view(3, 1, 1), torch.ones(3, 1, 1))
    assert torch.allclose(normaliser.normalise(torch.zeros(3, 4, 5))[:, 0, 0], torch.tensor([-1.0, -2.0, -3.0]))
    with pytest.raises(InvalidInputError, match="last axes"):
        normaliser.normalise(torch.zeros(4, 5, 3))


@pytest.mark.parametrize("x", [torch.zeros(2, 4), torch.zeros(()), torch.zeros(3, 1)])
def test_values_of_another_width_are_refused(x: torch.Tensor) -> None:
    for go in (made("min_max").normalise, made("min_max").unnormalise):
        with pytest.raises(InvalidInputError, match="last axes"):
            go(x)


def test_whole_numbers_come_out_as_floats() -> None:
    assert torch.equal(made("min_max").normalise(torch.tensor([0, 5, 1])), torch.tensor([0.0, 1.0, -1.0]))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"rule": "mean-std"}, "did you mean 'mean_std'"),
        ({"rule": "mean_std", "stats": {"mean": LOW}}, "'std'"),
        ({"rule": "quantiles", "stats": {"q10": LOW, "q99": HIGH}}, "did you mean 'q10'"),
        ({"rule": "min_max", "stats": {"min": LOW, "max": HIGH[:2]}}, "one shape"),
        ({"rule": "min_max", "stats": {"min": torch.tensor(0.0), "max": torch.tensor(1.0)}}, "one shape"),
        ({"rule": "min_max", "stats": {"min": HIGH, "max": LOW}}, "under 'min'"),
        ({"rule": "mean_std", "stats": {"mean": LOW, "std": -HIGH}}, "under 0"),
        ({"rule": "mean_std", "stats": {"mean": LOW, "std": LOW * torch.inf}}, "never measured"),
        ({"rule": "mean_std", "stats": {"mean": LOW * torch.nan, "std": HIGH}}, "never measured"),
        ({"eps": 0.0}, "eps"),
        ({"eps": float("nan")}, "eps"),
    ],
)
def test_statistics_that_cannot_be_used(settings, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Normaliser(**settings)
