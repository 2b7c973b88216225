"""A flow policy from its file: whole, with the eyes that it was trained with, or not at all."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest
import torch
from toy_policies import flow_policy, pictures

from mstar_plan.errors import InvalidInputError, UnavailableError, WeightsError
from mstar_plan.models.flow_policy.network import FlowNet, FlowPolicyConfig
from mstar_plan.models.flow_policy.policy import ARCHITECTURE, FlowPolicy, digest, load_flow_policy
from mstar_plan.models.registry import PRETRAINED, load_model
from mstar_plan.models.toy import ToyWorld
from mstar_plan.models.weights import WeightsInfo, action_to_json, read_info, save_weights


def info_of(policy: FlowPolicy, **changes) -> WeightsInfo:
    config = {**asdict(policy.config), "encoder_digest": digest(policy.encoder)}
    return replace(
        WeightsInfo("flow_toy", ARCHITECTURE, config, action_to_json(policy.action), "A toy."), **changes
    )  # fmt: skip


@pytest.fixture
def file(tmp_path):
    policy = flow_policy()
    path = tmp_path / "flow_toy.safetensors"
    save_weights(path, policy.net.state_dict(), info_of(policy), half=False)
    return path


def test_a_policy_comes_back_from_its_file(file):
    policy, loaded = flow_policy(), load_flow_policy("any", weights=file)
    noise, seen = torch.randn(1, 3, 6, 2), pictures((-0.4, 0.2), (0.3, -0.3))
    now, goal = (loaded.encode(frames[:, 0]) for frames in seen.values())
    torch.testing.assert_close(loaded.propose(now, goal, noise, 4), policy.propose(now, goal, noise, 4))
    assert loaded.description == "A toy."
    assert not any(parameter.requires_grad for parameter in loaded.parameters())


def test_another_encoder_is_refused(tmp_path):
    policy, path = flow_policy(), tmp_path / "flow_toy.safetensors"
    wrong = {**asdict(policy.config), "encoder_digest": "0" * 64}
    save_weights(path, policy.net.state_dict(), info_of(policy, config=wrong))
    with pytest.raises(WeightsError, match="another encoder"):
        load_flow_policy("any", weights=path)


def test_an_encoder_of_other_sizes_is_refused():
    net = FlowNet(FlowPolicyConfig("toy", latent=5))
    with pytest.raises(WeightsError, match="needs"):
        FlowPolicy("flow_toy", net, ToyWorld(), ToyWorld().spec.action)


def test_another_architecture_is_refused():
    with pytest.raises(WeightsError, match="is a jepa"):
        load_flow_policy("any", weights=PRETRAINED / "reach.safetensors")


def test_what_is_not_there():
    with pytest.raises(UnavailableError, match="mstar-plan train env=flow_moon"):
        load_flow_policy("flow_moon")
    with pytest.raises(InvalidInputError, match="device"):
        load_flow_policy("flow_reach", device="cuda:99")


def test_a_digest_tells_weights_apart():
    reach, push = load_model("reach"), load_model("push")
    assert digest(reach) == digest(load_model("reach"))
    assert len({digest(reach), digest(push), digest(ToyWorld())}) == 3
    before = digest(reach)
    next(reach.parameters()).data.view(-1)[0] += 1e-3
    assert digest(reach) != before


@pytest.mark.parametrize("name", ["flow_reach", "flow_push"])
def test_the_packaged_policies(name):
    policy, info = load_flow_policy(name), read_info(PRETRAINED / f"{name}.safetensors")
    assert policy.name == name
    assert policy.action.size == 2
    assert info.config["encoder_digest"] == digest(policy.encoder)
    assert {"held_out", "closed_loop"} <= info.evaluation.keys()
    held = info.evaluation["held_out"][0]
    assert held["nearest_chunk_error"] < held["chunk_error"] < 0.5


def test_they_are_small():
    sizes = [(PRETRAINED / f"flow_{name}.safetensors").stat().st_size for name in ("reach", "push")]
    assert sum(sizes) < 5e6
