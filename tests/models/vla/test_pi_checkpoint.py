"""Published weights: both layouts, tied embeddings, sizes from tensors, and everything that must not pass."""

from __future__ import annotations

import pytest
import torch
from vla_worlds import dummy_pi, observed, published, tiny_config, tiny_pi

from mstar_plan.errors import WeightsError
from mstar_plan.models.vla.act_walk import sample_chunk
from mstar_plan.models.vla.pi import PiPolicy
from mstar_plan.models.vla.pi_checkpoint import fit_sizes, load_pi
from mstar_plan.models.vla.pi_config import read_pi_config

HEAD = "paligemma_with_expert.paligemma.lm_head.weight"
OWN = "paligemma_with_expert.paligemma.model.language_model.embed_tokens.weight"


@torch.inference_mode()
def same(one: PiPolicy, other: PiPolicy) -> bool:
    noise = torch.randn(1, one.chunk, one.action_width, generator=torch.Generator().manual_seed(0))
    first, second = (sample_chunk(each, each.see(observed(each)), noise, 2) for each in (one, other))
    return torch.allclose(first, second, atol=1e-5)


@pytest.mark.parametrize("kind", ["pi0", "pi05"])
def test_published_names_are_read_with_and_without_their_prefix(kind: str) -> None:
    policy = tiny_pi(kind)
    tensors = published(policy)
    assert same(load_pi(policy.config, tensors), policy)
    wrapped = {f"model.{name}": tensor.half().float() for name, tensor in tensors.items()}
    assert load_pi(policy.config, wrapped).state_dict().keys() == policy.state_dict().keys()


def test_transformers_names_are_read() -> None:
    policy = tiny_pi("pi0")
    tensors = published(policy, transformers=True)
    assert "model.dit.layers.0.self_attn.q_proj.weight" in tensors
    assert same(load_pi(policy.config, tensors), policy)


def test_embeddings_may_stand_under_either_name_or_both() -> None:
    policy = tiny_pi("pi0")
    tensors = published(policy)
    moved = {name: tensor for name, tensor in tensors.items() if name != HEAD} | {OWN: tensors[HEAD]}
    for each in (moved, moved | {HEAD: tensors[HEAD].clone()}):
        assert same(load_pi(policy.config, each), policy)
    with pytest.raises(WeightsError, match="tied, but differ"):
        load_pi(policy.config, moved | {HEAD: tensors[HEAD] + 1})
    del moved[OWN]
    with pytest.raises(WeightsError, match="token embeddings"):
        load_pi(policy.config, moved)


def test_what_nobody_reads_may_be_there() -> None:
    policy = tiny_pi("pi05")
    tensors = published(policy)
    tensors["paligemma_with_expert.gemma_expert.lm_head.weight"] = torch.zeros(3, 3)
    tensors["paligemma_with_expert.paligemma.model.language_model.norm.weight"] = torch.zeros(3)
    assert same(load_pi(policy.config, tensors), policy)


def test_a_missing_tensor_is_named() -> None:
    policy = tiny_pi("pi0")
    for name in published(policy):
        tensors = published(policy)
        del tensors[name]
        with pytest.raises(WeightsError, match="lack"):
            load_pi(policy.config, tensors)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"state_projj.weight": torch.zeros(1)}, "state_projj.weight, which pi0 has not"),
        ({"time_mlp_in.weight": torch.zeros(16, 16)}, "which pi0 has not"),
        ({"state_proj.weight": torch.zeros(16, 5)}, r"state_in.weight is \[16, 5\]"),
        ({"action_out_proj.bias": torch.full((6,), torch.nan)}, "NaN"),
        ({HEAD: torch.zeros(299, 32)}, "another size"),
        (
            {"paligemma_with_expert.gemma_expert.model.layers.0.mlp.up_proj.weight": torch.zeros(32, 15)},
            "do not fit",
        ),
    ],
)
def test_weights_that_do_not_fit_are_refused(change: dict, said: str) -> None:
    policy = tiny_pi("pi0")
    with pytest.raises(WeightsError, match=said):
        load_pi(policy.config, published(policy) | change)


def test_one_kind_is_not_taken_for_the_other() -> None:
    for kind, other in (("pi0", "pi05"), ("pi05", "pi0")):
        with pytest.raises(WeightsError):
            load_pi(tiny_config(kind), published(tiny_pi(other)))


def test_sizes_that_lerobot_leaves_out_come_from_the_tensors() -> None:
    policy = dummy_pi("pi05")
    told = {"paligemma_variant": "dummy", "action_expert_variant": "dummy", "image_resolution": [28, 28]}
    told |= {"chunk_size": 5, "max_action_dim": 6, "max_state_dim": 6, "num_inference_steps": 4}
    tensors = {f"model.{name}": tensor for name, tensor in published(policy).items()}
    config = fit_sizes(read_pi_config("pi05", told), tensors)
    assert config == policy.config
    assert same(load_pi(config, tensors), policy)
    first = "model.paligemma_with_expert.paligemma.model.vision_tower.vision_model.embeddings.patch_embedding.weight"
    with pytest.raises(WeightsError, match="width 31"):
        fit_sizes(config, tensors | {first: tensors[first][:31]})
    del tensors[first]
    with pytest.raises(WeightsError, match="lack tensor"):
        fit_sizes(config, tensors)
