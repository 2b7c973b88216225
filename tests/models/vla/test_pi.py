"""What pi0 and pi0.5 share: prefixes without what is missing, tables of conditions, and half precision."""

from __future__ import annotations

import math

import pytest
import torch
from vla_worlds import observed, tiny_config, tiny_pi

from mstar_plan.errors import InvalidInputError
from mstar_plan.models.vla.act_walk import sample_chunk
from mstar_plan.models.vla.pi import PiPolicy, time_embedding
from mstar_plan.models.vla.prefix_cache import PrefixCache

KINDS = ("pi0", "pi05")


def act(policy: PiPolicy, seen: dict, steps: int = 3) -> torch.Tensor:
    noise = torch.randn(
        len(seen["tokens"]), policy.chunk, policy.action_width, generator=torch.Generator().manual_seed(9)
    )
    return sample_chunk(policy, policy.see(seen), noise, steps)


@pytest.mark.parametrize("kind", KINDS)
@torch.inference_mode()
def test_what_is_missing_changes_nothing(kind: str) -> None:
    """A row with a missing camera and a padded prompt acts as if both had never been there."""
    policy = tiny_pi(kind)
    seen = observed(policy, 2)
    alone = {name: value[1:] for name, value in seen.items()}
    alone["images"], alone["image_mask"] = alone["images"][:, :1], alone["image_mask"][:, :1]
    alone["tokens"], alone["token_mask"] = alone["tokens"][:, :-2], alone["token_mask"][:, :-2]
    both = act(policy, seen)
    noise = torch.randn(2, policy.chunk, policy.action_width, generator=torch.Generator().manual_seed(9))
    wanted = sample_chunk(policy, policy.see(alone), noise[1:], 3)
    torch.testing.assert_close(both[1:], wanted, atol=1e-5, rtol=1e-4)
    seen["images"][1, 1] = torch.nan  # pixels of a camera that is not there are not looked at
    assert torch.equal(act(policy, seen), both)


@pytest.mark.parametrize("kind", KINDS)
@torch.inference_mode()
def test_what_is_there_matters(kind: str) -> None:
    policy = tiny_pi(kind)
    seen = observed(policy, 1)
    first = act(policy, seen)
    for name in policy.observes:
        changed = dict(seen)
        if seen[name].dtype == torch.bool:
            changed[name] = seen[name].clone()
            changed[name][:, -1] = False
        else:
            changed[name] = seen[name].flip(-1)
        assert not torch.allclose(act(policy, changed), first, atol=1e-4), name


@torch.inference_mode()
def test_a_prefix_holds_only_what_is_there() -> None:
    policy = tiny_pi("pi05")
    seen = observed(policy, 2)
    z, there = policy.embed_prefix(*[seen[name] for name in policy.observes])
    assert there is not None
    assert there.sum(1).tolist() == [2 * 4 + 7, 4 + 5]
    assert z.shape[1] == 15
    one = {name: value[1:] for name, value in seen.items()}
    z, there = policy.embed_prefix(*[one[name] for name in policy.observes])
    assert there is None
    assert z.shape[1] == 9
    cache = policy.see(one)
    assert isinstance(cache, PrefixCache)
    assert (cache.length, cache.seen_BK) == (9, None)


@torch.inference_mode()
def test_the_image_tower_runs_for_cameras_that_are_there_alone() -> None:
    policy = tiny_pi("pi05")
    seen, looked = observed(policy, 2), []
    policy.vision.register_forward_pre_hook(lambda _, given: looked.append(len(given[0])))
    policy.see(seen)
    blind = seen | {"image_mask": torch.zeros(2, 2, dtype=torch.bool)}
    policy.see(blind)
    assert looked == [3]


@pytest.mark.parametrize("kind", KINDS)
def test_mistakes_are_told(kind: str) -> None:
    policy = tiny_pi(kind)
    seen = observed(policy, 1)
    with pytest.raises(InvalidInputError, match="vocabulary"):
        policy.see(seen | {"tokens": seen["tokens"] + 300})
    with pytest.raises(InvalidInputError, match="neither an image nor a token"):
        policy.see(seen | {name: torch.zeros_like(seen[name]) for name in ("image_mask", "token_mask")})
    with pytest.raises(InvalidInputError, match=r"\[3, 28, 28\]"):
        policy.see(seen | {"images": torch.zeros(1, 2, 3, 30, 28)})


@torch.inference_mode()
def test_conditions_are_kept_for_a_few_numbers_of_steps() -> None:
    policy = tiny_pi("pi05")
    table = policy.conditions(4)
    assert policy.conditions(4) is table
    assert table.shape == (4, 3 * 5, 16)
    for steps in range(5, 12):
        policy.conditions(steps)
    assert policy.conditions(4) is not table
    torch.testing.assert_close(policy.conditions(4), table)
    torch.testing.assert_close(policy.conditions(8)[::2], table)  # times 1, 3/4, 1/2, 1/4


def test_time_embedding_spans_the_periods() -> None:
    config = tiny_config(min_period=0.01, max_period=2.0)
    found = time_embedding(torch.tensor([0.3]), 6, config)[0]
    periods = [0.01, math.sqrt(0.02), 2.0]
    angles = [2 * math.pi * float(torch.tensor(0.3)) / period for period in periods]
    wanted = [*map(math.sin, angles), *map(math.cos, angles)]
    assert found.tolist() == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@torch.inference_mode()
def test_half_precision_is_near(kind: str) -> None:
    policy = tiny_pi(kind)
    seen = observed(policy, 2)
    wanted = act(policy, seen)
    policy.set_dtype(torch.bfloat16)
    assert policy.dtype == torch.bfloat16
    found = act(policy, seen)
    assert found.dtype == torch.float32
    assert policy.see(seen).kv_LBGKW.dtype == torch.bfloat16
    error = (found - wanted).abs().max() / wanted.abs().max()
    assert 0 < error < 0.05
