"""The predictor learns a known world on true tokens, and keeps to it when it is fed its own predictions."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from mstar_plan.errors import ConfigError, InvalidInputError
from mstar_plan.models.vjepa2.ac_predictor import ACPredictor
from mstar_plan.training.vjepa2.measure import rollout_errors
from mstar_plan.training.vjepa2.targets import TokenTargets
from mstar_plan.training.vjepa2.token_predictor import (
    PhaseConfig,
    PredictorTraining,
    TokenEpisodes,
    follow,
    roll,
    start_weights,
    train_predictor,
)


@pytest.fixture
def targets(many_episodes):
    return TokenTargets(torch.from_numpy(many_episodes.positions.reshape(-1, 2)).float(), tokens=4, width=24)


@pytest.fixture
def data(many_episodes, targets):
    tokens = targets(torch.from_numpy(many_episodes.positions).float())
    return TokenEpisodes(tokens.half(), torch.from_numpy(many_episodes.actions))


@pytest.fixture
def predictor(predictor_config):
    torch.manual_seed(0)
    made = ACPredictor(predictor_config)
    start_weights(made)
    return made


def test_windows_hold_frames_and_the_actions_between_them(data):
    tokens, actions = data.windows(torch.Generator().manual_seed(0), 5, 3)
    assert tokens.shape == (5, 4, 4, 24)
    assert tokens.dtype == torch.float32
    assert actions.shape == (5, 3, 2)
    where = (data.tokens.float() == tokens[0, 0]).all(-1).all(-1).nonzero()[0]
    torch.testing.assert_close(actions[0], data.actions[where[0], where[1] : where[1] + 3])


def test_windows_that_do_not_fit_are_refused(data):
    with pytest.raises(InvalidInputError, match="rollouts of 11 steps do not fit episodes of 10"):
        data.windows(torch.Generator(), 1, 11)


def test_a_rollout_is_what_the_whole_sequence_says(predictor, data):
    tokens, actions = data.windows(torch.Generator().manual_seed(0), 2, 4)
    rolled = roll(predictor, tokens[:, 0], actions)
    own_fed = torch.cat([tokens[:, :1], rolled[:, :-1]], 1)
    torch.testing.assert_close(follow(predictor, own_fed, actions), rolled, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(functional.layer_norm(rolled, (24,)), rolled, atol=1e-4, rtol=1e-4)


def test_the_start_is_near_keeping_still_and_hears_the_action(predictor, data):
    tokens, actions = data.windows(torch.Generator().manual_seed(0), 8, 1)
    still = roll(predictor, tokens[:, 0], actions)
    assert (still[:, 0] - tokens[:, 0]).abs().mean() < 0.5
    assert (roll(predictor, tokens[:, 0], -actions) - still).abs().mean() > 1e-3


def test_it_learns_to_roll_out(predictor, data, targets):
    told: list[tuple[int, dict[str, float]]] = []
    phases = (PhaseConfig(150, 2, batch=32, teacher_forcing=1.0), PhaseConfig(100, 6, batch=32))
    config = PredictorTraining(phases, learning_rate=4e-3, warmup=10)
    train_predictor(predictor, data, config, report=lambda i, terms: told.append((i, terms)))
    assert told[0][1].keys() == {"rollout", "teacher_forcing"}
    assert told[-1][0] == 250
    assert told[-1][1].keys() == {"rollout"}
    errors = rollout_errors(predictor, data, targets, 6)
    assert errors["rollout_l1"][-1] < 0.75 * errors["keep_still_l1"][-1]
    assert errors["rollout_error"][-1] < 0.2


def test_rollouts_longer_than_the_episodes_are_refused(predictor, data):
    with pytest.raises(InvalidInputError, match="12 steps"):
        train_predictor(predictor, data, PredictorTraining((PhaseConfig(1, 12),)))


def test_bad_settings_are_refused():
    with pytest.raises(ConfigError, match="steps is 0"):
        PhaseConfig(1, 0)
    with pytest.raises(ConfigError, match="teacher_forcing is -1"):
        PhaseConfig(1, 1, teacher_forcing=-1.0)
    with pytest.raises(ConfigError, match="phases is empty"):
        PredictorTraining(())
    with pytest.raises(ConfigError, match="learning_rate is 0"):
        PredictorTraining(learning_rate=0.0)


def test_the_work_of_a_curriculum():
    training = PredictorTraining((PhaseConfig(10, 2, batch=4, teacher_forcing=1.0), PhaseConfig(5, 8, batch=4)))
    assert [phase.work for phase in training.phases] == [16, 32]
    assert (training.iterations, training.longest) == (15, 8)
