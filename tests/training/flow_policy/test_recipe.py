"""From demonstrations to a weight file that loads, with what was measured in it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from toy_demonstrations import toy_demonstrations

from mstar_plan.config import load
from mstar_plan.errors import ConfigError
from mstar_plan.models.flow_policy.policy import FlowPolicy, digest
from mstar_plan.models.registry import PRETRAINED
from mstar_plan.models.toy import ToyWorld
from mstar_plan.models.weights import read_info, read_weights
from mstar_plan.training.flow_policy.cloning import CloningConfig
from mstar_plan.training.flow_policy.demonstrations import write_demonstrations
from mstar_plan.training.flow_policy.recipe import FlowTrainConfig, split, train


@pytest.fixture
def config(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    write_demonstrations(folder / "shard-00000.npz", toy_demonstrations(12, 6))
    cloning = CloningConfig(iterations=20, batch=16, report_every=10)
    out = tmp_path / "made.safetensors"
    return FlowTrainConfig(data=folder, out=out, chunk=3, width=16, blocks=1, steps=3, cloning=cloning)


def test_a_file_is_made_and_loads(config):
    said = []
    path = train(config, lambda file: {"closed_loop": {"file": file.name}}, say=said.append, encoder=ToyWorld())
    assert path == config.out
    info, tensors = read_weights(path)
    assert info.config["encoder_digest"] == digest(ToyWorld())
    assert info.evaluation["closed_loop"] == {"file": "made.safetensors"}
    assert {"chunk_error", "spread"} <= info.evaluation["held_out"][0].keys()
    assert info.data_hash == toy_demonstrations(12, 6).digest()
    assert info.training["cloning"]["iterations"] == 20
    assert not any(isinstance(value, Path) for value in info.training.values())
    policy = FlowPolicy.from_weights(info, tensors, ToyWorld())
    assert (policy.name, policy.config.chunk, policy.config.steps) == ("flow_reach", 3, 3)
    assert [line.split(",")[0] for line in said] == ["66 chunks of 11 episodes", "flow: 10 of 20", "flow: 20 of 20"]


def test_the_weights_follow_from_seed_and_data(config, tmp_path):
    def made(name, seed):
        again = FlowTrainConfig(**{**vars(config), "out": tmp_path / f"{name}.safetensors", "seed": seed})
        return read_weights(train(again, say=lambda line: None, encoder=ToyWorld()))[1]

    first, second, other = made("a", 0), made("b", 0), made("c", 1)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


def test_one_episode_at_least_is_held_out_and_learned_from():
    episodes = toy_demonstrations(4, 3)
    for share, held in ((0.01, 1), (0.5, 2), (0.99, 3)):
        training, measured = split(episodes, share)
        assert (len(measured), len(training)) == (held, 4 - held)
        assert measured.seeds.tolist() == list(range(held))


@pytest.mark.parametrize("env", ["flow_reach", "flow_push"])
def test_shipped_settings_are_those_of_the_packaged_file(env):
    config, info = load(f"train/{env}", [], FlowTrainConfig), read_info(PRETRAINED / f"{env}.safetensors")
    assert config.env == info.name == env
    assert config.chunk == config.demonstrations.planner.horizon  # what is proposed is as long as what is planned
    for name in ("chunk", "width", "blocks", "steps"):
        assert info.config[name] == getattr(config, name)
    for name in ("demonstrations", "cloning"):
        settings = json.loads(json.dumps(asdict(getattr(config, name))))
        told = dict(info.training[name])
        for each in (settings, told):
            each.pop("processes", None)
        assert told == settings


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"env": "flow_moon"}, "did you mean|known"),
        ({"env": "reach"}, "flow_reach"),
        ({"seed": -1}, "seed is -1"),
        ({"threads": 0}, "threads 0"),
        ({"held_out": 1.0}, "held_out"),
        ({"out": Path("weights.pt")}, "safetensors"),
    ],
)
def test_settings_are_checked(change, said):
    with pytest.raises(ConfigError, match=said):
        FlowTrainConfig(**change)
