"""From episodes to a weight file that loads, in seconds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from mstar_plan.config.loading import read_option
from mstar_plan.config.typed import Place, to_dataclass
from mstar_plan.errors import ConfigError
from mstar_plan.models.jepa import JepaMember
from mstar_plan.models.registry import load_model_file
from mstar_plan.models.weights import read_info
from mstar_plan.training.losses import LossConfig
from mstar_plan.training.member_job import MemberJob, measure, train_member
from mstar_plan.training.metric_head import HeadConfig
from mstar_plan.training.recipe import TrainConfig, join_members, train
from mstar_plan.training.refinement import RefinementConfig
from mstar_plan.training.shards import data_hash, write_shard
from mstar_plan.training.trainer import TrainerConfig

QUICK = TrainerConfig(seconds=0.8, batch=8, steps=3, warmup=2, held_out=0.2, checks=2, horizon=4)
STAGES = {"trainer": QUICK, "refinement": RefinementConfig(seconds=0.3, steps=4), "head": HeadConfig(seconds=0.3)}


class Outbox(list):
    put = list.append


@pytest.fixture
def data(tmp_path, episodes):
    folder = tmp_path / "data"
    folder.mkdir()
    write_shard(folder / "shard-00000.npz", episodes)
    return folder


def test_a_member_runs_all_stages_and_tells(tmp_path, data, episodes, small_model):
    box = Outbox()
    job = MemberJob(0, 0, data, tmp_path, small_model, LossConfig(), **STAGES, pin=False)
    result = train_member(job, box)
    assert set(result.measured["iterations"]) == {"pixels", "refinement", "head"}
    assert all(count > 0 for count in result.measured["iterations"].values())
    assert result.data_hash == data_hash(episodes)
    assert len(result.measured["rollout_error"]) == 4
    assert box
    assert box[-1].member == 0
    shares = [news.share for news in box]
    assert shares == sorted(shares)
    assert "head_rank_correlation" in result.measured


def test_measure_is_a_function_of_the_member(tmp_path, data, episodes, small_model):
    member = JepaMember(small_model).eval()
    assert measure(member, episodes, 4) == measure(member, episodes, 4)


def test_train_writes_weights_curves_and_evaluation(tmp_path, data, episodes, small_model):
    out = tmp_path / "run" / "reach.safetensors"
    model = type(small_model)(**{**vars(small_model), "members": 2})
    config = TrainConfig(env="reach", out=out, data=data, steps=8, model=model, seed=5, **STAGES)
    seen: list[Path] = []

    def evaluate(path: Path):
        seen.append(path)
        return {"success_rate": 0.5}

    assert train(config, evaluate) == out
    assert seen == [out]
    info = read_info(out)
    assert info.seed == 5
    assert info.data_hash == data_hash(episodes)
    assert info.evaluation["success_rate"] == 0.5
    assert len(info.evaluation["held_out"]) == 2
    assert str(tmp_path) not in json.dumps(dict(info.training))
    loaded = load_model_file(out)
    assert loaded.spec.latent_shape == (2, 6)
    assert loaded.spec.action.names == ("x", "y")
    z = loaded.encode(torch.from_numpy(episodes.frames[0]))
    assert not torch.allclose(z[:, 0], z[:, 1])  # the members are of different seeds
    names = {path.name for path in out.parent.iterdir()}
    assert names == {"reach.safetensors"} | {f"member-{i}-curves.{kind}" for i in (0, 1) for kind in ("png", "json")}


def test_joined_members_keep_their_tensors():
    joined = join_members([{"a": torch.zeros(1)}, {"a": torch.ones(1)}])
    assert {name: float(value) for name, value in joined.items()} == {"0.a": 0.0, "1.a": 1.0}


@pytest.mark.parametrize("name", ["reach", "wall", "push"])
def test_the_shipped_settings_are_valid_and_short_enough(name):
    config = to_dataclass(TrainConfig, read_option("train", name), Place("", name))
    assert config.env == name
    head = config.head.seconds if config.model.head else 0
    assert config.trainer.seconds + config.refinement.seconds + head < 13 * 60  # the rest is collecting and encoding


def test_bad_settings_are_refused():
    with pytest.raises(ConfigError, match="did you mean 'push'"):
        TrainConfig(env="pusj")
    with pytest.raises(ConfigError, match=r"ends in \.safetensors"):
        TrainConfig(out=Path("weights.bin"))
    with pytest.raises(ConfigError, match="steps is 10"):
        TrainConfig(steps=10)
    with pytest.raises(ConfigError, match="seed is -1"):
        TrainConfig(seed=-1)
