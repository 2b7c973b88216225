"""SmolVLA as a policy and as a walk: what each part may see, requests that join, and what is refused."""

from __future__ import annotations

import random

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from vla_files import GOLDEN, case_config
from walk_driver import run, run_together

from mstar_plan.errors import ConfigError, InvalidInputError
from mstar_plan.models.vla.act_walk import Finish, act_graph, sample_chunk
from mstar_plan.models.vla.rtc import ChunkingConfig, ChunkPrior, make_prior
from mstar_plan.models.vla.smolvla import SmolVLAPolicy
from mstar_plan.models.vla.smolvla_config import smolvla_config
from mstar_plan.models.vla.smolvla_weights import load_smolvla
from mstar_plan.runtime.runtime import Runtime
from mstar_plan.walks.graph import Graph

CLOSE = {"atol": 2e-5, "rtol": 1e-4}


@pytest.fixture(scope="module")
def policy() -> SmolVLAPolicy:
    config = smolvla_config(case_config(), case_config())
    return load_smolvla(config, load_file(GOLDEN / "smolvla" / "weights.safetensors"))


@pytest.fixture(scope="module")
def graph(policy: SmolVLAPolicy) -> Graph:
    limit = torch.full((6,), torch.inf)
    return act_graph("smolvla", policy, Finish(lambda x: x, -limit, limit))


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.inference_mode():
        yield


def observed(seed: int, rows: int = 1, cameras: int = 2, prompt: int = 6) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "images": torch.rand(rows, cameras, 3, 32, 32, generator=generator) * 2 - 1,
        "image_mask": torch.ones(rows, cameras, dtype=torch.bool),
        "tokens": torch.randint(3, 290, (rows, prompt), generator=generator),
        "token_mask": torch.ones(rows, prompt, dtype=torch.bool),
        "state": torch.randn(rows, 6, generator=generator),
    }


def noise(seed: int, rows: int = 1) -> Tensor:
    return torch.randn(rows, 5, 6, generator=torch.Generator().manual_seed(seed))


def chunk(policy: SmolVLAPolicy, seen: dict[str, Tensor], seed: int = 9, prior: ChunkPrior | None = None) -> Tensor:
    return sample_chunk(policy, policy.see(seen), noise(seed, len(seen["state"])), policy.steps, prior)


# --- what is seen -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["images", "tokens", "state"])
def test_actions_follow_everything_that_is_there(policy: SmolVLAPolicy, name: str) -> None:
    seen = observed(0)
    other = seen | {name: observed(1)[name]}
    assert not torch.allclose(chunk(policy, seen), chunk(policy, other), atol=1e-3)


def test_what_is_masked_changes_nothing(policy: SmolVLAPolicy) -> None:
    seen = observed(0)
    seen["image_mask"][0, 1] = False
    seen["token_mask"][0, 4:] = False
    other = {name: tensor.clone() for name, tensor in seen.items()}
    other["images"][0, 1] = torch.nan
    other["tokens"][0, 4:] = 7
    assert torch.equal(chunk(policy, seen), chunk(policy, other))
    less = {
        "images": seen["images"][:, :1],
        "image_mask": seen["image_mask"][:, :1],
        "tokens": seen["tokens"][:, :4],
        "token_mask": seen["token_mask"][:, :4],
        "state": seen["state"],
    }
    assert torch.equal(chunk(policy, seen), chunk(policy, less))


def test_rows_of_different_lengths_are_as_alone(policy: SmolVLAPolicy) -> None:
    seen = observed(3, rows=3)
    seen["image_mask"][0, 0] = False
    seen["token_mask"][1, 2:] = False
    together = chunk(policy, seen)
    for row in range(3):
        alone = {name: tensor[row : row + 1] for name, tensor in seen.items()}
        x = sample_chunk(policy, policy.see(alone), noise(9, 3)[row : row + 1], policy.steps)
        assert torch.allclose(together[row : row + 1], x, **CLOSE)


def test_the_prefix_does_not_see_the_state(policy: SmolVLAPolicy) -> None:
    first, second = (policy.see(observed(0) | {"state": torch.full((1, 6), value)}) for value in (0.0, 5.0))
    for ours, theirs in zip(first.keys + first.values, second.keys + second.values, strict=True):
        assert torch.equal(ours[:, :, :14], theirs[:, :, :14])
        assert not torch.allclose(ours[:, :, 14], theirs[:, :, 14], atol=1e-3)


def test_an_action_does_not_see_those_behind_it(policy: SmolVLAPolicy) -> None:
    prefix, x = policy.see(observed(0)), noise(1)
    other = x.clone()
    other[:, 3:] += 1
    condition = policy.conditions(4)[:1]
    v, w = (policy.velocity(each, condition, prefix) for each in (x, other))
    assert torch.allclose(v[:, :3], w[:, :3], atol=1e-6)
    assert not torch.allclose(v[:, 3:], w[:, 3:], atol=1e-3)
    other = x.clone()
    other[:, 0] += 1
    assert not torch.allclose(policy.velocity(other, condition, prefix)[:, 4], v[:, 4], atol=1e-3)


def test_steps_leave_the_prefix_as_it_was(policy: SmolVLAPolicy) -> None:
    prefix = policy.see(observed(0))
    before = [part[:, :, :15].clone() for part in prefix.keys + prefix.values]
    first = sample_chunk(policy, prefix, noise(1), 3)
    assert all(torch.equal(a, b[:, :, :15]) for a, b in zip(before, prefix.keys + prefix.values, strict=True))
    assert torch.equal(first, sample_chunk(policy, prefix, noise(1), 3))


def test_tables_of_times_are_kept_and_bounded(policy: SmolVLAPolicy) -> None:
    table = policy.conditions(6)
    assert policy.conditions(6) is table
    assert torch.allclose(table[0], policy.condition(torch.ones(1))[0], atol=1e-6)
    for steps in range(1, 12):
        policy.conditions(steps)
    assert len(policy._tables) <= 4


# --- the walk ---------------------------------------------------------------------------------------------------------


def requests() -> list[dict[str, object]]:
    """Robots with different cameras, prompts, numbers of steps and old chunks."""
    plain = [observed(0), observed(1, cameras=3), observed(2, prompt=4), observed(3, rows=2)]
    plain[1]["image_mask"][0, 2] = False
    guided = make_prior(ChunkingConfig(max_weight=5.0, horizon=3), 5, noise(77)[:, :4], 1)
    priors = [None, guided, None, None]
    return [
        seen
        | {
            "noise": noise(at, len(seen["state"])),
            "prior": prior or ChunkPrior(len(seen["state"])),
            "steps": 4 + at % 2,
        }
        for at, (seen, prior) in enumerate(zip(plain, priors, strict=True))
    ]


@pytest.mark.parametrize("seed", range(3))
def test_requests_join_whatever_their_prefix(policy: SmolVLAPolicy, graph: Graph, seed: int) -> None:
    wanted = [
        sample_chunk(policy, policy.see(each), each["noise"], each["steps"], each["prior"]) for each in requests()
    ]
    got = run_together(graph, "act", requests(), random.Random(seed))
    for ours, outputs in zip(wanted, got, strict=True):
        assert torch.allclose(ours, outputs["actions"], **CLOSE)
        assert not bool(outputs["clipped"].any())


def test_caches_of_different_lengths_join(policy: SmolVLAPolicy) -> None:
    caches = [policy.see(observed(0)), policy.see(observed(1, prompt=3)), policy.see(observed(2, cameras=1))]
    assert len({cache.length for cache in caches}) == 3
    assert len({cache.join_key() for cache in caches}) == 1
    joined = type(caches[0]).join(caches)
    assert joined.rows == 3
    x, condition = torch.cat([noise(at) for at in range(3)]), policy.conditions(4)[2].expand(3, -1)
    v = policy.velocity(x, condition, joined)
    for row, cache in enumerate(caches):
        alone = policy.velocity(x[row : row + 1], condition[:1], cache)
        assert torch.allclose(v[row : row + 1], alone, **CLOSE)
        part = joined.split([1, 1, 1])[row]
        assert torch.allclose(policy.velocity(x[row : row + 1], condition[:1], part), alone, **CLOSE)


def test_a_runtime_joins_robots(policy: SmolVLAPolicy, graph: Graph) -> None:
    with Runtime(graph) as runtime:
        futures = [runtime.submit("act", each) for each in requests()]
        for each, future in zip(requests(), futures, strict=True):
            expected = run(graph, "act", each).outputs["actions"]
            assert torch.allclose(future.result(30).outputs["actions"], expected, **CLOSE)


def test_an_old_chunk_pulls(policy: SmolVLAPolicy) -> None:
    old = torch.full((1, 4, 6), 3.0)
    prior = make_prior(ChunkingConfig(schedule="ones", max_weight=5.0, horizon=3), 5, old, 1)
    plain, pulled = chunk(policy, observed(0)), chunk(policy, observed(0), prior=prior)
    nearer = (pulled - 3).abs()[:, :3] < (plain - 3).abs()[:, :3]
    assert bool(nearer.all())


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("tokens", torch.full((1, 6), 300), "leave the vocabulary of 300"),
        ("tokens", torch.full((1, 6), -1), "leave the vocabulary"),
        ("tokens", torch.full((1, 5), 3), "send two of"),
        ("token_mask", torch.ones(1, 6), "mask in bool"),
        ("image_mask", torch.ones(1, 3, dtype=torch.bool), "bool"),
        ("images", torch.zeros(1, 2, 3, 32, 16), "squares"),
        ("state", torch.zeros(1, 5), "padded with zeros"),
        ("state", torch.zeros(2, 6), "padded with zeros"),
    ],
)
def test_observations_that_are_refused(policy: SmolVLAPolicy, name: str, value: Tensor, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        policy.see(observed(0) | {name: value})


def test_something_must_be_seen(policy: SmolVLAPolicy) -> None:
    seen = observed(0)
    nothing = {"image_mask": ~seen["image_mask"], "token_mask": ~seen["token_mask"]}
    with pytest.raises(InvalidInputError, match="neither an image nor a token"):
        policy.see(seen | nothing)


def test_clean_prefixes_are_refused(policy: SmolVLAPolicy) -> None:
    prior = make_prior(ChunkingConfig(mode="trained", max_delay=3), 5, torch.zeros(1, 4, 6), 2)
    with pytest.raises(ConfigError, match="use chunking mode 'guided'"):
        chunk(policy, observed(0), prior=prior)


def test_half_precision_stays_near() -> None:
    config = smolvla_config(case_config(), case_config())
    tensors = load_file(GOLDEN / "smolvla" / "weights.safetensors")
    full, half = load_smolvla(config, tensors), load_smolvla(config, tensors, torch.bfloat16)
    actions = chunk(half, observed(0))
    assert actions.dtype == torch.float32
    error = (actions - chunk(full, observed(0))).abs().max()
    assert 0 < error < 0.3
