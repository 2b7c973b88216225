"""The trainer: it learns the toy world, keeps the best checkpoint, and takes up where it stopped."""

from __future__ import annotations

import pytest
import torch

from mstar_plan.errors import ConfigError, InvalidInputError
from mstar_plan.training.losses import LossConfig
from mstar_plan.training.trainer import MemberTrainer, TrainerConfig

QUICK = TrainerConfig(seconds=1.0, batch=8, steps=3, warmup=2, held_out=0.2, checks=4, horizon=4, bfloat16=False)


class StoppedError(Exception):
    """Raised from a report to end a run halfway."""


def test_a_run_checks_reports_and_keeps_the_best(episodes, small_model):
    told = []
    trainer = MemberTrainer(episodes, small_model, LossConfig(), QUICK)
    trained = trainer.run(lambda share, row: told.append((share, row)))
    assert len(trained.rows) == len(told) == 4
    shares = [share for share, _ in told]
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1.0, abs=0.01)
    assert trained.best["error_mean"] == min(row["error_mean"] for row in trained.rows)
    assert trained.rows[-1]["loss"] < trained.rows[0]["loss"]
    assert {"error_1", "error_4", "effective_rank", "probe_r2", "rollout", "variance"} <= set(trained.rows[0])
    assert not trained.member.training


@pytest.mark.slow
def test_it_learns_to_see_and_predict_the_point(many_episodes, small_model):
    config = TrainerConfig(seconds=12, batch=32, steps=4, warmup=10, held_out=0.1, checks=3, horizon=4)
    trained = MemberTrainer(many_episodes, small_model, LossConfig(), config).run()
    assert trained.best["probe_r2"] > 0.95
    assert trained.best["error_4"] < 0.1


def test_resume_goes_on_from_the_checkpoint(tmp_path, episodes, small_model):
    path = tmp_path / "member.ckpt"

    def stop(share, row):
        if share > 0.4:
            raise StoppedError

    with pytest.raises(StoppedError):
        MemberTrainer(episodes, small_model, LossConfig(), QUICK, checkpoint=path).run(stop)
    saved = torch.load(path, weights_only=True)["progress"]
    assert len(saved["rows"]) == 1  # the report that stopped it came before its save
    trained = MemberTrainer(episodes, small_model, LossConfig(), QUICK, checkpoint=path).run()
    assert len(trained.rows) == 4
    assert trained.rows[0] == saved["rows"][0]
    assert trained.rows[-1]["iteration"] > saved["iteration"]
    done = MemberTrainer(episodes, small_model, LossConfig(), QUICK, checkpoint=path).run()
    assert done.rows == trained.rows
    for name, value in done.member.state_dict().items():
        assert torch.equal(value, trained.member.state_dict()[name])


def test_another_runs_checkpoint_is_refused(tmp_path, episodes, small_model):
    path = tmp_path / "member.ckpt"
    MemberTrainer(episodes, small_model, LossConfig(), QUICK, checkpoint=path).run()
    with pytest.raises(InvalidInputError, match="no checkpoint of this run"):
        MemberTrainer(episodes, small_model, LossConfig(), QUICK, seed=1, checkpoint=path)
    path.write_bytes(b"nonsense")
    with pytest.raises(InvalidInputError, match="delete it first"):
        MemberTrainer(episodes, small_model, LossConfig(), QUICK, checkpoint=path)


def test_the_seed_decides_the_start(episodes, small_model):
    trainers = [MemberTrainer(episodes, small_model, LossConfig(), QUICK, seed=seed) for seed in (0, 0, 1)]
    weights = [trainer._member.encoder.out.weight for trainer in trainers]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_bad_settings_are_refused():
    for bad in ({"seconds": 0}, {"batch": 0}, {"held_out": 0.5}, {"learning_rate": -1.0}):
        with pytest.raises(ConfigError, match=next(iter(bad))):
            TrainerConfig(**bad)
