"""Behaviour cloning in the toy world: it learns to go to the goal, and the same seed learns the same."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from toy_demonstrations import META, toy_demonstrations
from toy_policies import pictures

from mstar_plan.errors import ConfigError, InvalidInputError
from mstar_plan.models.flow_policy.network import FlowNet, FlowPolicyConfig
from mstar_plan.models.flow_policy.policy import FlowPolicy
from mstar_plan.models.flow_policy.walk import draw
from mstar_plan.models.toy import ToyWorld, best_plan
from mstar_plan.training.flow_policy.cloning import CloningConfig, Windows, clone, encode_windows, flow_loss, measure
from mstar_plan.training.flow_policy.demonstrations import Demonstrations

CHUNK = 4
QUICK = CloningConfig(iterations=400, batch=128, learning_rate=3e-3, warmup=20, average=0.97, report_every=100)


def untrained(width: int = 64) -> FlowPolicy:
    torch.manual_seed(0)
    world = ToyWorld()
    net = FlowNet(FlowPolicyConfig("toy", latent=2, chunk=CHUNK, width=width, blocks=2, steps=5))
    return FlowPolicy("flow_toy", net, world, world.spec.action)


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Nets this small only wait for one another's threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def windows() -> Windows:
    return encode_windows(untrained(), toy_demonstrations(96, 8))


@pytest.fixture(scope="module")
def trained(windows) -> FlowPolicy:
    policy = untrained()
    clone(policy, windows, QUICK)
    return policy


def test_windows_are_chunks_of_what_comes_next():
    episodes = toy_demonstrations(2, 5)
    found = encode_windows(untrained(), episodes)
    assert len(found) == 10
    now, goal, chunk, known = found.at(torch.tensor([2, 8]))  # episode 0 step 2, episode 1 step 3
    np.testing.assert_array_equal(chunk[0, :3], episodes.actions[0, 2:5])
    np.testing.assert_array_equal(chunk[1, :2], episodes.actions[1, 3:5])
    assert chunk[1, 2:].abs().max() == 0
    assert known.tolist() == [[True, True, True, False], [True, True, False, False]]
    world = ToyWorld()
    torch.testing.assert_close(now[0], world.encode(torch.from_numpy(episodes.frames[0, 2:3]))[0, 0])
    torch.testing.assert_close(goal, world.encode(torch.from_numpy(episodes.goals))[:, 0])


def test_actions_are_learned_in_units_of_the_bounds():
    meta = {**META, "action": {**META["action"], "low": [0.0, -2.0], "high": [4.0, 2.0]}}
    episodes = toy_demonstrations(2, 5)
    wide = Demonstrations(episodes.frames, episodes.goals, episodes.actions * 2 + [2.0, 0.0], episodes.seeds, meta)
    policy = untrained()
    policy.action = wide.action
    torch.testing.assert_close(
        encode_windows(policy, wide).chunks, encode_windows(untrained(), episodes).chunks.double(), atol=1e-6, rtol=0
    )


def test_it_learns_to_go_to_the_goal(trained):
    start, goal = (-0.5, 0.4), (0.3, 0.1)
    now, wanted = (trained.encode(frames[:, 0]) for frames in pictures(start, goal).values())
    made = trained.propose(now, wanted, draw(torch.tensor([0]), (8, CHUNK, 2)), 5)[0].clamp(-1, 1)
    best = torch.from_numpy(best_plan(start, goal, CHUNK))
    assert (made - best).abs().mean() < 0.15
    there = trained.propose(wanted, wanted, draw(torch.tensor([0]), (8, CHUNK, 2)), 5)[0]
    assert there.abs().mean() < 0.25  # it stays where it is to be


def test_what_is_measured(trained):
    held = encode_windows(trained, toy_demonstrations(24, 8, seed=5))
    found = measure(trained, held)
    assert found == measure(trained, held)
    assert found["nearest_chunk_error"] < found["chunk_error"] < 0.35
    assert measure(untrained(), held)["chunk_error"] > 2 * found["chunk_error"]


def test_the_same_seed_learns_the_same(windows):
    quick = CloningConfig(iterations=5, batch=16, report_every=5)
    news, states = [], []
    for seed in (0, 0, 1):
        policy = untrained(16)
        clone(policy, windows, quick, seed=seed, report=lambda i, loss: news.append((i, loss)))
        states.append(torch.cat([tensor.flatten() for tensor in policy.net.state_dict().values()]))
    assert torch.equal(states[0], states[1])
    assert not torch.equal(states[0], states[2])
    assert [i for i, _ in news] == [5, 5, 5]


def test_what_lies_behind_the_end_is_not_learned(windows):
    net, config = untrained(16).net, CloningConfig()
    now, goal, chunk, known = windows.at(torch.arange(16))
    losses = []
    for beyond in (0.0, 5.0):
        changed = torch.where(known[..., None], chunk, torch.tensor(beyond))
        mask = torch.ones_like(known) if beyond == 1 else known
        make = torch.Generator().manual_seed(0)
        losses.append((changed, flow_loss(net, now, goal, changed, mask, config=config, generator=make).item()))
    assert not torch.equal(losses[0][0], losses[1][0])
    fixed = torch.Generator().manual_seed(0)
    everything = flow_loss(net, now, goal, losses[1][0], torch.ones_like(known), config=config, generator=fixed).item()
    assert everything > 2 * losses[1][1]


def test_demonstrations_of_another_robot_are_refused():
    episodes = toy_demonstrations(2, 5)
    small = Demonstrations(
        episodes.frames[:, :, ::2, ::2], episodes.goals[:, ::2, ::2], episodes.actions, episodes.seeds, META
    )
    with pytest.raises(InvalidInputError, match="32, 32"):
        encode_windows(untrained(), small)


@pytest.mark.parametrize(
    "change",
    [{"iterations": 0}, {"batch": 0}, {"learning_rate": 0.0}, {"late": 0.0}, {"average": 1.0}, {"latent_noise": -1.0}],
)
def test_settings_are_checked(change):
    with pytest.raises(ConfigError, match=next(iter(change))):
        CloningConfig(**change)
