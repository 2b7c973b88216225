"""Latents become token grids whose layer norm hardly bends distances, and can be read back."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from mstar_plan.errors import ConfigError
from mstar_plan.training.vjepa2.targets import TokenTargets


@pytest.fixture
def latents():
    return 3.0 * torch.randn(500, 6, generator=torch.Generator().manual_seed(0)) + 1.0


def test_the_layer_norm_of_a_target_is_itself_and_latents_are_read_back(latents):
    targets = TokenTargets(latents, tokens=4, width=16)
    tokens = targets(latents)
    assert tokens.shape == (500, 4, 16)
    torch.testing.assert_close(functional.layer_norm(tokens, (16,)), tokens, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(targets.read(tokens), latents, atol=1e-4, rtol=1e-4)


def test_every_token_sees_the_latent_in_its_own_way(latents):
    tokens = TokenTargets(latents, tokens=4, width=16)(latents)
    assert (tokens[:, 0] - tokens[:, 1]).abs().mean() > 0.5


def test_distances_of_tokens_are_nearly_those_of_latents(latents):
    targets = TokenTargets(latents, tokens=4, width=32)
    tokens = targets(latents)
    apart = (latents[:250] - latents[250:]).norm(dim=1)
    said = (tokens[:250] - tokens[250:]).abs().mean((1, 2))
    assert torch.corrcoef(torch.stack([apart, said]))[0, 1] > 0.9


def test_the_same_seed_gives_the_same_projections(latents):
    one, two, other = (TokenTargets(latents, 4, 16, seed=seed).projection for seed in (1, 1, 2))
    assert torch.equal(one, two)
    assert not torch.equal(one, other)


def test_tokens_that_are_too_narrow_are_refused(latents):
    with pytest.raises(ConfigError, match="at least 8"):
        TokenTargets(latents, tokens=4, width=7)
