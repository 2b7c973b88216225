"""pi0.5: norms that follow the time, and clean prefixes."""

from __future__ import annotations

import torch
from vla_worlds import observed, tiny_pi

from mstar_plan.models.vla.act_walk import sample_chunk
from mstar_plan.models.vla.pi05 import Pi05Policy
from mstar_plan.models.vla.rtc import ChunkingConfig, make_prior


@torch.inference_mode()
def test_the_time_reaches_the_velocity_through_the_norms_alone() -> None:
    policy = tiny_pi("pi05")
    prefix = policy.see(observed(policy))
    x = torch.randn(1, policy.chunk, policy.action_width)
    early, late = (policy.velocity(x, policy.condition(torch.tensor([t])), prefix) for t in (1.0, 0.25))
    assert not torch.allclose(early, late)
    assert policy.expert.modulation is not None
    policy.expert.modulation.weight.zero_()
    policy._tables.clear()
    early, late = (policy.velocity(x, policy.condition(torch.tensor([t])), prefix) for t in (1.0, 0.25))
    assert torch.equal(early, late)


@torch.inference_mode()
def test_clean_actions_are_told_the_time_zero() -> None:
    """All clean is time 0; none clean is the time itself; some clean is neither."""
    policy = tiny_pi("pi05")
    prefix = policy.see(observed(policy, 2))
    x = torch.randn(2, policy.chunk, policy.action_width)
    now, zero = (policy.condition(torch.tensor([t])).expand(2, -1, -1) for t in (0.75, 0.0))
    clean = torch.ones(2, policy.chunk, dtype=torch.bool)
    torch.testing.assert_close(policy.velocity(x, now, prefix, clean), policy.velocity(x, zero, prefix))
    torch.testing.assert_close(policy.velocity(x, now, prefix, ~clean), policy.velocity(x, now, prefix))
    clean[:, 2:] = False
    mixed = policy.velocity(x, now, prefix, clean)
    for other in (now, zero):
        assert not torch.allclose(mixed, policy.velocity(x, other, prefix))


@torch.inference_mode()
def test_a_clean_prefix_stays_as_it_is_and_changes_the_rest() -> None:
    policy = tiny_pi("pi05")
    prefix = policy.see(observed(policy))
    noise, old = torch.randn(1, policy.chunk, policy.action_width), torch.randn(1, 3, policy.action_width)
    prior = make_prior(ChunkingConfig("trained", max_delay=3), policy.chunk, old, 2)
    found = sample_chunk(policy, prefix, noise, 4, prior)
    assert torch.equal(found[:, :2], old[:, :2])
    assert not torch.allclose(found[:, 2:], sample_chunk(policy, prefix, noise, 4)[:, 2:])


def test_a_cast_forgets_what_was_worked_out() -> None:
    policy = tiny_pi("pi05")
    assert isinstance(policy, Pi05Policy)
    before = policy.conditions(3)
    policy.set_dtype(torch.bfloat16)
    assert policy.conditions(3).dtype == torch.bfloat16
    torch.testing.assert_close(policy.conditions(3).float(), before, atol=0.05, rtol=0.05)
