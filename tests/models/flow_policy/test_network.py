"""The flow net: shapes, rows that do not see one another, and a straight flow that it can learn."""

from __future__ import annotations

import pytest
import torch

from mstar_plan.errors import ConfigError
from mstar_plan.models.flow_policy.network import FlowNet, FlowPolicyConfig, time_features

CONFIG = FlowPolicyConfig("toy", latent=3, chunk=4, actions=2, width=32, blocks=2, frequencies=4)


@pytest.fixture
def net() -> FlowNet:
    torch.manual_seed(0)
    made = FlowNet(CONFIG)
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return made.eval()


@pytest.fixture
def one_thread():
    """Nets this small only wait for one another's threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def inputs(rows=3, proposals=5):
    make = torch.Generator().manual_seed(1)
    x = torch.randn(rows, proposals, 4, 2, generator=make)
    return (
        x,
        torch.rand(rows, generator=make),
        torch.randn(rows, 3, generator=make),
        torch.randn(rows, 3, generator=make),
    )


def velocity(net, x, time, now, goal):
    return net.velocity(x, time, net.see(now, goal))


def test_proposals_and_requests_do_not_see_one_another(net):
    x, time, now, goal = inputs()
    whole = velocity(net, x, time, now, goal)
    assert whole.shape == x.shape
    for row in range(3):
        at = slice(row, row + 1)
        for proposal in range(5):
            one = velocity(net, x[at, proposal : proposal + 1], time[at], now[at], goal[at])
            torch.testing.assert_close(one[0, 0], whole[row, proposal], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("changed", ["x", "time", "now", "goal"])
def test_everything_matters(net, changed):
    values = dict(zip(("x", "time", "now", "goal"), inputs(), strict=True))
    before = velocity(net, **values)
    values[changed] = values[changed] + 0.3
    assert (velocity(net, **values) - before).abs().max() > 1e-3


def test_latents_are_scaled(net):
    now, goal = torch.randn(2, 3), torch.randn(2, 3)
    before = net.see(now, goal)
    net.get_buffer("latent_mean").fill_(2.0)
    net.get_buffer("latent_std").fill_(3.0)
    torch.testing.assert_close(net.see(now * 3 + 2, goal * 3 + 2), before, atol=1e-5, rtol=1e-5)


def test_times_are_told_apart():
    times = torch.linspace(0, 1, 101)
    features = time_features(times, 16)
    assert features.shape == (101, 32)
    apart = torch.cdist(features, features) + 10 * torch.eye(101)
    assert apart.min() > 0.05
    torch.testing.assert_close(time_features(times[7:8], 16), features[7:8])
    first = time_features(torch.tensor([0.001]), 16)[0]  # the shortest period is 4 ms
    assert first[0].item() == pytest.approx(1.0, abs=1e-4)


def test_it_learns_a_velocity(one_thread):
    torch.manual_seed(0)
    net, make = FlowNet(CONFIG), torch.Generator().manual_seed(0)
    optimiser = torch.optim.Adam(net.parameters(), 3e-3)
    losses = []
    for _ in range(150):
        noise, now, goal = (
            torch.randn(64, 1, 4, 2, generator=make),
            torch.randn(64, 3, generator=make),
            torch.zeros(64, 3),
        )
        actions = now[:, None, None, :2].expand(-1, 1, 4, -1)
        time = torch.rand(64, generator=make)
        t = time[:, None, None, None]
        wanted = noise - actions
        loss = (velocity(net, t * noise + (1 - t) * actions, time, now, goal) - wanted).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert sum(losses[-10:]) < 0.35 * sum(losses[:10])


@pytest.mark.parametrize(
    "change", [{"chunk": 0}, {"width": 0}, {"blocks": 0}, {"steps": 0}, {"latent": -1}, {"encoder": ""}]
)
def test_sizes_are_checked(change):
    with pytest.raises(ConfigError, match=next(iter(change))):
        FlowPolicyConfig(**{"encoder": "toy", **change})
