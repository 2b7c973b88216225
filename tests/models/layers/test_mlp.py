"""The stacked perceptron is its members side by side."""

from __future__ import annotations

import pytest
import torch

from mstar_plan.models.layers.mlp import Mlp, StackedMlp


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("members", [1, 3])
def test_stacked_equals_the_members(norm, members):
    torch.manual_seed(0)
    mlps = [Mlp((5, 7, 6, 4), norm=norm) for _ in range(members)]
    for parameter in (p for mlp in mlps for p in mlp.parameters()):
        torch.nn.init.normal_(parameter)  # also scales and shifts, which start at one and zero
    x = torch.randn(members, 9, 5)
    expected = torch.stack([mlp(rows) for mlp, rows in zip(mlps, x, strict=True)])
    torch.testing.assert_close(StackedMlp(mlps)(x), expected)


def test_residual_is_added_and_inputs_stay():
    mlp = Mlp((4, 8, 4), norm=True)
    x = torch.randn(1, 3, 4)
    before = x.clone()
    torch.testing.assert_close(StackedMlp([mlp])(x, x), mlp(x) + x)
    assert torch.equal(x, before)


def test_zero_last_starts_as_nothing():
    assert torch.equal(Mlp((4, 8, 3), zero_last=True)(torch.randn(5, 4)), torch.zeros(5, 3))


def test_stacked_keeps_a_copy():
    mlp = Mlp((2, 3, 2))
    stacked, x = StackedMlp([mlp]), torch.randn(1, 4, 2)
    before = stacked(x)
    with torch.no_grad():
        mlp.linears[0].weight.add_(1.0)
    assert torch.equal(stacked(x), before)
