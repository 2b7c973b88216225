"""The walks `act` and `propose`: the hand-written flow, its noise, and requests that share calls."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from toy_policies import flow_policy, pictures

from mstar_plan.errors import ComponentError, ConfigError, InvalidInputError, LimitExceededError
from mstar_plan.models.flow_policy.walk import STREAM, Finish, draw, policy_graph
from mstar_plan.rollout.noise import white_noise
from mstar_plan.runtime.runtime import Runtime
from mstar_plan.types import ActionSpec
from mstar_plan.walks.batch import Batch

SEEN = pictures((-0.4, 0.2), (0.3, -0.3))


@pytest.fixture(scope="module")
def policy():
    return flow_policy()


@pytest.fixture(scope="module")
def runtime(policy):
    with Runtime(policy_graph(policy)) as made:
        yield made


def propose(runtime, count=5, seed=3, steps=4, **changes):
    values = {**SEEN, "seed": torch.tensor([seed]), "proposals": count, "steps": steps, **changes}
    return runtime.submit("propose", values).result(20).outputs["actions"]


def act(runtime, seed=3, steps=4, **changes):
    values = {**SEEN, "seed": torch.tensor([seed]), "steps": steps, **changes}
    return runtime.submit("act", values).result(20).outputs["actions"]


@pytest.mark.parametrize("steps", [1, 4, 10])
def test_the_walk_is_the_hand_written_flow(policy, runtime, steps):
    noise = draw(torch.tensor([3]), (5, 6, 2))
    now, goal = (policy.encode(frames[:, 0]) for frames in SEEN.values())
    by_hand = policy.propose(now, goal, noise, steps).clamp(-1, 1)
    torch.testing.assert_close(propose(runtime, steps=steps), by_hand, atol=1e-5, rtol=1e-5)
    assert (by_hand - noise.clamp(-1, 1)).abs().max() > 0.01


def test_to_act_is_the_first_proposal(runtime):
    first = act(runtime)
    assert first.shape == (1, 6, 2)
    assert torch.equal(first, propose(runtime, 1)[:, 0])
    torch.testing.assert_close(first, propose(runtime, 9)[:, 0], atol=1e-5, rtol=1e-5)


def test_the_first_proposals_do_not_depend_on_how_many_there_are(runtime):
    torch.testing.assert_close(propose(runtime, 12)[:, :4], propose(runtime, 4), atol=1e-5, rtol=1e-5)
    noise = draw(torch.tensor([3, 9]), (12, 6, 2))
    assert torch.equal(noise[:, :4], draw(torch.tensor([3, 9]), (4, 6, 2)))
    assert torch.equal(noise[1:], draw(torch.tensor([9]), (12, 6, 2)))


def test_noise_is_normal_and_of_its_own():
    noise = draw(torch.tensor([3]), (1000, 6, 2))
    assert abs(noise.mean().item()) < 0.03
    assert noise.std().item() == pytest.approx(1.0, abs=0.03)
    assert not torch.equal(noise[:, :, 0].flatten()[:100], white_noise(3, 0, (1000, 2, 6)).flatten()[:100])
    assert STREAM > 1000  # more than a search may have iterations


def test_another_seed_another_chunk(runtime):
    assert torch.equal(act(runtime), act(runtime))
    assert not torch.equal(act(runtime), act(runtime, seed=4))


def test_what_is_seen_and_wanted_matters(runtime):
    before = act(runtime)
    for name, picture in (("frames", "goal_frames"), ("goal_frames", "frames")):
        assert not torch.equal(before, act(runtime, **{name: SEEN[picture]}))


def test_requests_share_calls_and_stay_themselves(policy):
    with Runtime(policy_graph(policy)) as runtime, ThreadPoolExecutor(6) as robots:
        asked = [
            {**pictures((0.1 * n, -0.2), (0.2, 0.1 * n)), "seed": torch.tensor([n]), "proposals": 6, "steps": steps}
            for n, steps in enumerate((4, 4, 2, 4, 8, 2))
        ]
        alone = [runtime.submit("propose", values).result(20) for values in asked]
        together = list(robots.map(lambda values: runtime.submit("propose", values).result(20), asked))
    assert max(result.timing.largest_batch for result in together) > 1
    for one, shared in zip(alone, together, strict=True):
        torch.testing.assert_close(one.outputs["actions"], shared.outputs["actions"], atol=1e-5, rtol=0)


def test_actions_are_in_units_and_inside_the_bounds():
    spec = ActionSpec(low=[-0.5, 0.0], high=[1.5, 4.0], dt_s=0.1)
    x = torch.tensor([[[[0.0, 0.0], [1.0, -1.0], [3.0, -3.0]]]])
    actions = Finish(spec)(Batch({"x": x}, 1))["actions"]
    np.testing.assert_allclose(actions[0, 0], [[0.5, 2.0], [1.5, 0.0], [1.5, 0.0]])
    with pytest.raises(ComponentError, match="NaN"):
        Finish(spec)(Batch({"x": x / 0}, 1))


@pytest.mark.parametrize("count", [0, -1, 1025])
def test_how_many_proposals(runtime, count):
    with pytest.raises(InvalidInputError, match="proposals"):
        propose(runtime, count)


@pytest.mark.parametrize(("steps", "error"), [(0, ConfigError), (101, LimitExceededError)])
def test_how_many_steps(runtime, steps, error):
    with pytest.raises(error, match=str(steps)):
        act(runtime, steps=steps)
