"""Refining the predictor on frozen latents."""

from __future__ import annotations

import pytest
import torch

from mstar_plan.errors import ConfigError, InvalidInputError
from mstar_plan.models.jepa import JepaMember
from mstar_plan.training.diagnostics import rollout_error
from mstar_plan.training.latents import LatentEpisodes
from mstar_plan.training.refinement import RefinementConfig, refine


@pytest.fixture
def data():
    """Latents that move by the action in their first two dimensions, and stay in the others."""
    torch.manual_seed(0)
    actions = torch.rand(40, 8, 2) * 2 - 1
    moving = torch.cat([torch.randn(40, 1, 2), 0.3 * actions], dim=1).cumsum(1)
    return LatentEpisodes(torch.cat([moving, torch.randn(40, 1, 4).expand(-1, 9, -1)], dim=-1), actions)


def test_the_predictor_learns_and_the_encoder_stays(data, small_model):
    torch.manual_seed(0)
    member = JepaMember(small_model)
    before = {name: value.clone() for name, value in member.state_dict().items()}
    error = rollout_error(member, data.latents, data.actions, 6)[-1]
    iterations = refine(member, data, RefinementConfig(seconds=2, steps=6, batch=64, learning_rate=3e-3))
    assert iterations > 20
    assert rollout_error(member, data.latents, data.actions, 6)[-1] < 0.2 * error
    after = member.state_dict()
    changed = {name.split(".")[0] for name in before if not torch.equal(after[name], before[name])}
    assert changed == {"predictor"}


def test_a_rollout_longer_than_the_episodes_is_refused(data, small_model):
    with pytest.raises(InvalidInputError, match="steps is 9, but episodes have 8"):
        refine(JepaMember(small_model), data, RefinementConfig(steps=9))
    assert refine(JepaMember(small_model), data, RefinementConfig(seconds=0.1, steps=8)) > 0


def test_bad_settings_are_refused():
    for bad in ({"seconds": -1}, {"steps": 0}, {"batch": 0}, {"learning_rate": 0.0}):
        with pytest.raises(ConfigError, match=next(iter(bad))):
            RefinementConfig(**bad)
    RefinementConfig(seconds=0)
