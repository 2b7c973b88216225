"""The JEPA: its fast paths equal its members' plain ones, alone and as an ensemble."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from mstar_plan.errors import ConfigError, WeightsError
from mstar_plan.models.jepa import Jepa, JepaConfig, JepaMember
from mstar_plan.models.weights import WeightsInfo, action_to_json
from mstar_plan.models.world_model import WorldModel
from mstar_plan.types import ActionSpec

ACTION = ActionSpec(low=np.array([-1, -2, -3]), high=np.array([1, 2, 3]), dt_s=0.1)


def make(members=2, head=(10, 6)):
    sizes = {"image_size": 16, "patch": 4, "width": 8, "blocks": 1, "hidden": 12, "latent": 5, "actions": 3}
    config = JepaConfig(**sizes, predictor=(9, 7), head=head, members=members)
    torch.manual_seed(0)
    parts = [JepaMember(config).eval() for _ in range(members)]
    for parameter in (p for part in parts for p in part.predictor.parameters()):
        nn.init.normal_(parameter, std=0.3)  # the last layer starts at zero
    return config, parts, Jepa("small", config, ACTION, parts)


@pytest.mark.parametrize("members", [1, 2, 3])
def test_encode_is_one_token_a_member(members):
    _, parts, model = make(members)
    frames = torch.randint(0, 256, (4, 16, 16, 3), dtype=torch.uint8)
    latent = model.encode(frames)
    assert latent.shape == (4, *model.spec.latent_shape) == (4, members, 5)
    for n, part in enumerate(parts):
        torch.testing.assert_close(latent[:, n], part.encoder(frames), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("members", [1, 2, 3])
def test_rollout_equals_the_members_own(members):
    _, parts, model = make(members)
    context, actions = torch.randn(2, 1, members, 5), torch.randn(2, 6, 4, 3)
    latent, state, cache = model.begin(context, None, None, 6, 3)
    assert latent.shape == (2, 6, members, 5)
    expected = context[:, 0, None].expand(-1, 6, -1, -1)
    for h in range(4):
        latent, state, cache = model.predict(latent, state, actions[:, :, h], cache)
        expected = torch.stack([part.step(expected[:, :, n], actions[:, :, h]) for n, part in enumerate(parts)], dim=2)
        torch.testing.assert_close(latent, expected, rtol=1e-4, atol=1e-5)
    assert state is None
    assert cache is None


@pytest.mark.parametrize("members", [1, 2])
def test_embedded_distance_is_the_root_of_the_members_squares(members):
    _, parts, model = make(members)
    a, b = torch.randn(2, 6, 4, members, 5), torch.randn(2, 6, 4, members, 5)
    distance = (model.embed(a) - model.embed(b)).norm(dim=-1)
    squares = [(part.head(a[..., n, :]) - part.head(b[..., n, :])).square().sum(-1) for n, part in enumerate(parts)]
    torch.testing.assert_close(distance, torch.stack(squares).sum(0).sqrt())
    assert model.embed(a[0, 0, 0]).shape == (members * 6,)


def test_without_a_head_distance_is_the_root_mean_square():
    _, _, model = make(2, head=())
    a, b = torch.randn(3, 2, 5), torch.randn(3, 2, 5)
    expected = (a - b).square().mean(dim=(1, 2)).sqrt()
    torch.testing.assert_close((model.embed(a) - model.embed(b)).norm(dim=-1), expected)


def test_predict_changes_no_input():
    _, _, model = make(2)
    latent, action = torch.randn(1, 3, 2, 5), torch.randn(1, 3, 3)
    before = latent.clone()
    model.predict(latent, None, action, None)
    assert torch.equal(latent, before)


def test_keeps_the_protocol_and_moves_as_one():
    _, _, model = make()
    assert isinstance(model, WorldModel)
    latent, action = torch.randn(1, 2, 2, 5).double(), torch.randn(1, 2, 3).double()
    assert model.to(torch.float64).predict(latent, None, action, None)[0].dtype == torch.float64


def test_from_weights_round_trip():
    config, parts, model = make()
    info = WeightsInfo("small", "jepa", vars(config), action_to_json(ACTION))
    loaded = Jepa.from_weights(info, nn.ModuleList(parts).state_dict())
    frames = torch.randint(0, 256, (2, 16, 16, 3), dtype=torch.uint8)
    torch.testing.assert_close(loaded.encode(frames), model.encode(frames))
    assert loaded.spec.action.high.tolist() == [1, 2, 3]
    with pytest.raises(WeightsError, match="did you mean 'latent'"):
        Jepa.from_weights(WeightsInfo("small", "jepa", {"latnet": 3}, action_to_json(ACTION)), {})


@pytest.mark.parametrize(
    ("change", "word"),
    [({"patch": 7}, "patch"), ({"latent": 0}, "latent"), ({"predictor": ()}, "predictor"), ({"head": (8, -1)}, "head")],
)
def test_bad_sizes_are_refused(change, word):
    with pytest.raises(ConfigError, match=word):
        JepaConfig(**change)
