"""From episodes and a teacher to a weight file that loads, in seconds; and what the shipped files are worth."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from mstar_plan.config.loading import read_option
from mstar_plan.config.typed import Place, to_dataclass
from mstar_plan.errors import ConfigError
from mstar_plan.models.jepa import JepaMember
from mstar_plan.models.registry import PRETRAINED, load_model, load_model_file
from mstar_plan.models.weights import WeightsInfo, action_to_json, read_info, save_weights
from mstar_plan.training.recipe import TrainConfig, join_members
from mstar_plan.training.shards import data_hash, write_shard
from mstar_plan.training.vjepa2.distillation import DistillationConfig
from mstar_plan.training.vjepa2.recipe import VJEPA2TrainConfig, train
from mstar_plan.training.vjepa2.token_predictor import PhaseConfig, PredictorTraining

TASKS = ["reach", "wall", "push"]
SHORT = PredictorTraining((PhaseConfig(3, 2, batch=4, teacher_forcing=1.0), PhaseConfig(2, 4, batch=4)))


@pytest.fixture
def data(tmp_path, episodes):
    folder = tmp_path / "data"
    folder.mkdir()
    write_shard(folder / "shard-00000.npz", episodes)
    return folder


@pytest.fixture
def teacher(tmp_path, episodes, small_model):
    path = tmp_path / "teacher.safetensors"
    info = WeightsInfo("reach", "jepa", asdict(small_model), action_to_json(episodes.action))
    save_weights(path, join_members([JepaMember(small_model).state_dict()]), info)
    return path


def test_train_writes_weights_and_figures(tmp_path, data, episodes, teacher, encoder_config, predictor_config):
    said: list[str] = []
    config = VJEPA2TrainConfig(
        out=tmp_path / "run" / "small.safetensors",
        data=data,
        teacher=teacher,
        steps=8,
        seed=3,
        held_out=0.2,
        encoder=encoder_config,
        predictor=predictor_config,
        distillation=DistillationConfig(iterations=5, batch=8),
        rollouts=SHORT,
    )
    assert train(config, lambda path: {"success_rate": 0.5, "file": path.name}, say=said.append) == config.file
    assert said[0].startswith("encoder: 1 of 5")
    assert said[-1].startswith("predictor: 5 of 5")
    info = read_info(config.file)
    assert (info.name, info.architecture, info.seed) == ("vjepa2_reach", "vjepa2_ac", 3)
    assert info.data_hash == data_hash(episodes)
    assert info.evaluation["success_rate"] == 0.5
    assert len(info.evaluation["held_out"][0]["rollout_error"]) == 4
    assert str(tmp_path) not in json.dumps(dict(info.training))
    model = load_model_file(config.file)
    assert model.spec.latent_shape == (4, 24)
    assert model.spec.action.names == ("x", "y")
    assert model.spec.state_size == 0


@pytest.mark.parametrize("name", TASKS)
def test_the_shipped_settings_are_valid(name):
    config = to_dataclass(VJEPA2TrainConfig, read_option("train", f"vjepa2_{name}"), Place("", name))
    assert (config.env, config.task) == (f"vjepa2_{name}", name)
    jepa = to_dataclass(TrainConfig, read_option("train", name), Place("", name))
    assert config.collection == jepa.collection  # the teacher's own episodes


def test_bad_settings_are_refused():
    with pytest.raises(ConfigError, match="did you mean 'vjepa2_push'"):
        VJEPA2TrainConfig(env="vjepa2_pusj")
    with pytest.raises(ConfigError, match=r"ends in \.safetensors"):
        VJEPA2TrainConfig(out=Path("weights.bin"))
    with pytest.raises(ConfigError, match="steps is 10"):
        VJEPA2TrainConfig(steps=10)
    with pytest.raises(ConfigError, match="seed is -1"):
        VJEPA2TrainConfig(seed=-1)


@pytest.mark.parametrize("name", TASKS)
def test_the_shipped_weights_load_are_small_and_say_what_they_reach(name):
    path = PRETRAINED / f"vjepa2_{name}.safetensors"
    assert path.stat().st_size < 12e6
    info = read_info(path)
    assert info.evaluation["closed_loop"]["success_rate"] >= (0.7 if name == "push" else 0.9)
    model = load_model(f"vjepa2_{name}")
    assert model.spec.latent_shape[0] > 1
    assert model.spec.max_horizon >= 20


@pytest.mark.render
@pytest.mark.parametrize("name", TASKS)
def test_the_energy_falls_with_the_true_distance(name):
    gymnasium = pytest.importorskip("gymnasium")
    env = gymnasium.make(f"envs:mstar/{name.capitalize()}-v0")
    model = load_model(f"vjepa2_{name}")
    frames, places = [], []
    for seed in range(24):
        observation, _ = env.reset(seed=700 + seed)
        frames += [observation["image"], observation["goal_image"]]
        places += [observation["achieved_goal"], observation["desired_goal"]]
    env.close()
    with torch.inference_mode():
        seen = model.embed(model.encode(torch.stack([torch.from_numpy(frame) for frame in frames])))
    goal, place = seen[1], torch.tensor(places[1])
    energy = (seen - goal).abs().mean(-1)
    distance = (torch.stack([torch.from_numpy(each) for each in places]) - place).norm(dim=-1)
    assert energy[1] < 1e-5
    near, far = energy[distance < distance.median()], energy[distance >= distance.median()]
    assert near.mean() < far.mean()
