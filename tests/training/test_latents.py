"""Encoding once, and the clocked loop that trains on the result."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mstar_plan.models.jepa import JepaMember
from mstar_plan.training.latents import clocked_steps, encode_episodes


def test_latents_are_those_of_the_encoder_and_can_be_trained_on(episodes, small_model):
    member = JepaMember(small_model).eval()
    data = encode_episodes(member, episodes)
    assert data.latents.shape == (12, 9, 6)
    assert data.actions.shape == (12, 8, 2)
    assert data.steps == 8
    with torch.no_grad():
        expected = member.encoder(torch.from_numpy(episodes.frames[3]))
    torch.testing.assert_close(data.latents[3], expected, rtol=1e-4, atol=1e-5)
    linear = nn.Linear(6, 1)
    linear(data.latents).sum().backward()  # an inference tensor would raise here
    assert linear.weight.grad is not None


def test_clocked_steps_minimise_within_the_time():
    torch.manual_seed(0)
    linear = nn.Linear(3, 1)
    x = torch.randn(64, 3)
    y = x @ torch.tensor([[1.0], [2.0], [-1.0]])
    told = []
    iterations = clocked_steps(
        list(linear.parameters()),
        lambda: (linear(x) - y).square().mean(),
        seconds=1.2,
        learning_rate=0.1,
        report=lambda share, loss: told.append((share, loss)),
    )
    assert iterations > 100
    with torch.no_grad():
        assert float((linear(x) - y).square().mean()) < 0.01
    assert len(told) == 1
    assert told[0][0] == pytest.approx(0.85, abs=0.14)
