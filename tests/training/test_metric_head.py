"""The distance head learns the time between states."""

from __future__ import annotations

import pytest
import torch

from mstar_plan.errors import ConfigError
from mstar_plan.models.jepa import JepaMember
from mstar_plan.training.latents import LatentEpisodes
from mstar_plan.training.metric_head import HeadConfig, draw_pairs, head_distance, train_head


@pytest.fixture
def data():
    """Straight walks: latents move one unit a step in a random direction of a plane, so that time is distance."""
    generator = torch.Generator().manual_seed(0)
    angle = torch.rand(60, 1, generator=generator) * 6.283
    direction = torch.stack([angle.cos(), angle.sin()], dim=-1)
    walk = torch.randn(60, 1, 2, generator=generator) * 3 + direction * torch.arange(12.0)[None, :, None]
    noise = torch.randn(60, 12, 4, generator=generator)  # says nothing about time
    return LatentEpisodes(torch.cat([walk, noise], dim=-1), torch.zeros(60, 11, 2))


def test_distance_grows_with_time_and_noise_is_dropped(data, small_model):
    torch.manual_seed(0)
    member = JepaMember(small_model)
    before = {name: value.clone() for name, value in member.state_dict().items()}
    assert train_head(member, data, HeadConfig(seconds=4, strangers=0.0)) > 100
    z = data.latents
    one, four = (head_distance(member.head, z[:, 2], z[:, 2 + gap]).mean().item() for gap in (1, 4))
    assert 0.25 < four < 0.55  # four steps are .4
    assert four > 1.5 * one
    after = member.state_dict()
    changed = {name.split(".")[0] for name in before if not torch.equal(after[name], before[name])}
    assert changed == {"head"}


def test_pairs_have_the_gap_of_their_episode(data):
    config = HeadConfig(batch=500, longest=6, strangers=0.3)
    count = torch.arange(60.0)[:, None, None] * 1000 + torch.arange(12.0)[None, :, None]
    first, second, target = draw_pairs(count, config, torch.Generator().manual_seed(0))
    gap = (second - first)[:, 0]
    same = gap.abs() < 12
    torch.testing.assert_close(target[same], gap[same].clamp_max(6) / 10)
    assert (target[~same] == 0.6).all()
    assert 0.2 < (~same).float().mean() < 0.4
    assert (gap[same] >= 0).all()
    assert gap[same].max() == 11
    assert (gap[same] < 4).float().mean() > 0.5  # short ones are likelier


def test_bad_settings_are_refused():
    for bad in ({"seconds": 0}, {"strangers": 1.0}, {"above": -0.1}, {"longest": 0}):
        with pytest.raises(ConfigError, match=next(iter(bad))):
            HeadConfig(**bad)
