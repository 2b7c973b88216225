"""Real-time chunking: weights, the pull, clean prefixes, and priors that join."""

from __future__ import annotations

import math

import pytest
import torch

from mstar_plan.errors import ConfigError, InvalidInputError
from mstar_plan.models.vla.rtc import ChunkingConfig, ChunkPrior, guidance_weight, make_prior, prefix_weights


@pytest.mark.parametrize(
    ("schedule", "delay", "horizon", "wanted"),
    [
        ("zeros", 2, 4, [1, 1, 0, 0, 0, 0]),
        ("ones", 2, 4, [1, 1, 1, 1, 0, 0]),
        ("linear", 2, 4, [1, 1, 2 / 3, 1 / 3, 0, 0]),
        ("exp", 2, 4, [1, 1, 2 / 3 * math.expm1(2 / 3) / (math.e - 1), math.expm1(1 / 3) / 3 / (math.e - 1), 0, 0]),
        ("linear", 5, 3, [1, 1, 1, 0, 0, 0]),  # the delay is longer than the horizon
        ("linear", 0, 9, [6 / 7, 5 / 7, 4 / 7, 3 / 7, 2 / 7, 1 / 7]),  # the horizon is longer than the chunk
        ("zeros", 9, 9, [1] * 6),
        ("ones", 0, 9, [1] * 6),
    ],
)
def test_weights_fall_between_delay_and_horizon(schedule, delay: int, horizon: int, wanted: list[float]) -> None:
    assert prefix_weights(schedule, delay, horizon, 6).tolist() == pytest.approx(wanted)


def test_guidance_weight_is_limited_at_both_ends() -> None:
    weights = guidance_weight(torch.tensor([1.0, 0.5, 0.25]), torch.tensor([5.0, 5.0, 50.0]))
    assert weights.tolist() == pytest.approx([5.0, 2.0, (1 / 3) * (0.25**2 + 0.75**2) / 0.25**2])


def test_the_pull_is_the_formula_and_leaves_other_rows_alone() -> None:
    torch.manual_seed(0)
    x, v, old = torch.randn(1, 4, 2), torch.randn(1, 4, 2), torch.randn(1, 3, 2)
    prior = make_prior(ChunkingConfig(schedule="ones", max_weight=5.0, horizon=2), 4, old, 1)
    assert prior is not None
    t = torch.tensor([0.5])
    error = torch.cat([old, torch.zeros(1, 1, 2)], 1) - (x - 0.5 * v)
    wanted = v - 2.0 * error * torch.tensor([1.0, 1.0, 0.0, 0.0])[:, None]
    torch.testing.assert_close(prior.guide(x, v, t), wanted)
    both = ChunkPrior.join([ChunkPrior(1), prior])
    found = both.guide(x.expand(2, -1, -1), v.expand(2, -1, -1), t.expand(2))
    assert torch.equal(found[0], v[0])
    torch.testing.assert_close(found[1:], wanted)


def test_guidance_pulls_the_end_of_the_flow_to_the_old_chunk() -> None:
    """With x1 = x - t v, a velocity that leads to the old chunk is left alone, and any other is moved towards it."""
    x, old = torch.ones(1, 2, 1), torch.full((1, 2, 1), 3.0)
    prior = make_prior(ChunkingConfig(schedule="ones", horizon=2, max_weight=1.0), 2, old, 0)
    assert prior is not None
    t = torch.tensor([0.5])
    there = (x - old) / 0.5
    torch.testing.assert_close(prior.guide(x, there, t), there)
    guided = prior.guide(x, there + 1, t)
    assert ((x - 0.5 * guided) - old).abs().max() < ((x - 0.5 * (there + 1)) - old).abs().max()


def test_a_clean_prefix_is_put_in_and_nothing_pulls() -> None:
    config = ChunkingConfig("trained", max_delay=3)
    prior = make_prior(config, 4, torch.full((1, 3, 2), 7.0), 2)
    assert prior is not None
    assert not prior.guides
    held = prior.hold(torch.zeros(1, 4, 2))
    assert held[0, :, 0].tolist() == [7.0, 7.0, 0.0, 0.0]
    assert make_prior(config, 4, torch.zeros(1, 3, 2), 0) is None


def test_priors_join_and_split_row_by_row() -> None:
    guided = make_prior(ChunkingConfig(), 4, torch.rand(2, 3, 2), 1)
    clean = make_prior(ChunkingConfig("trained", max_delay=3), 4, torch.rand(1, 2, 2), 1)
    assert guided is not None
    assert clean is not None
    joined = ChunkPrior.join([guided, ChunkPrior(1), clean])
    assert joined.rows == 4
    assert joined.weights is not None
    assert joined.clean is not None
    assert joined.clean.sum(1).tolist() == [0, 0, 0, 1]
    assert joined.weights[2:].abs().sum() == 0
    back = joined.split([2, 1, 1])
    assert torch.equal(back[0].target, guided.target)
    assert torch.equal(back[2].clean, clean.clean)
    assert [part.rows for part in back] == [2, 1, 1]
    nothing = ChunkPrior.join([ChunkPrior(1), ChunkPrior(2)])
    assert (nothing.rows, nothing.target) == (3, None)
    x = torch.rand(3, 4, 2)
    assert nothing.hold(x) is x
    assert nothing.guide(x, x, torch.ones(3)) is x
    assert [part.rows for part in nothing.split([1, 2])] == [1, 2]


@pytest.mark.parametrize(
    ("previous", "delay", "said"),
    [
        (torch.zeros(1, 5, 2), 0, "5 actions; send 1 to 4"),
        (torch.zeros(1, 0, 2), 0, "0 actions"),
        (torch.zeros(1, 3, 2), 4, "delay is 4"),
        (torch.zeros(1, 3, 2), -1, "delay is -1"),
        (torch.full((1, 3, 2), torch.nan), 1, "NaN"),
    ],
)
def test_previous_actions_that_do_not_fit_are_refused(previous: torch.Tensor, delay: int, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        make_prior(ChunkingConfig(), 4, previous, delay)


def test_a_delay_over_what_was_trained_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="up to 2 actions"):
        make_prior(ChunkingConfig("trained", max_delay=2), 5, torch.zeros(1, 4, 2), 3)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"mode": "other"}, "guided or trained"),
        ({"schedule": "cubic"}, "zeros, ones"),
        ({"max_weight": 0.0}, "max_weight"),
        ({"horizon": 0}, "horizon"),
        ({"mode": "trained"}, "rtc_training_max_delay"),
    ],
)
def test_settings_are_checked(settings: dict, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        ChunkingConfig(**settings)
