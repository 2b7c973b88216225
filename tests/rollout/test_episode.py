"""What an episode remembers between its plans."""

import numpy as np
import pytest
from planning_worlds import Glider

from mstar_plan.errors import InvalidInputError
from mstar_plan.models.toy import ToyWorld, render
from mstar_plan.rollout.episode import Episode
from mstar_plan.types import Goal, Observation, Plan, PlanStatus, WarmStart

GOAL = Goal(latent=np.zeros((1, 2)))
MEAN = np.arange(6, dtype=np.float32).reshape(3, 2) / 10
SEEN = Observation(render([0.1, 0.2])[None], seq=7)


def plan(latent: list[float] | None = None) -> Plan:
    kept = None if latent is None else np.array([latent], np.float32)
    return Plan(MEAN, 0.0, 0.1, PlanStatus.COMPLETE, warm_start=WarmStart(MEAN, MEAN[None] + 0.1), latent=kept)


def test_a_model_of_one_frame() -> None:
    episode = Episode(ToyWorld().spec, GOAL, seed=3)
    first = episode.request(SEEN)
    assert first.observation.seq == 7
    assert first.goal is GOAL
    assert (first.warm_start, first.context_latents, first.context_actions) == (None, None, None)
    episode.planned(plan())
    assert episode.request(SEEN).warm_start.mean.tolist() == MEAN.tolist(), "not shifted before an action is executed"
    episode.executed(MEAN[0])
    second = episode.request(SEEN)
    assert second.warm_start.mean.tolist() == [*MEAN[1:].tolist(), [0, 0]]
    assert second.context_actions.tolist() == [MEAN[0].tolist()]
    assert second.seed != first.seed
    assert Episode(ToyWorld().spec, GOAL, seed=3).request(SEEN).seed == first.seed


def test_a_model_of_two_frames_sees_the_first_one_twice() -> None:
    episode = Episode(Glider().spec, GOAL)
    first = episode.request(SEEN)
    assert first.observation.frames.shape[0] == 2
    assert np.array_equal(first.observation.frames[0], first.observation.frames[1])
    assert first.context_actions.tolist() == [[0, 0]]
    episode.planned(plan([0.1, 0.2]))
    episode.executed(MEAN[1])
    second = episode.request(SEEN)
    assert second.observation.frames.shape[0] == 1
    np.testing.assert_allclose(second.context_latents, [[[0.1, 0.2]]], rtol=1e-6)
    assert second.context_actions.tolist() == [MEAN[1].tolist()]


def test_only_the_newest_frame_is_encoded_again() -> None:
    frames = np.stack([render([0.0, 0.0]), render([0.5, 0.5])])
    asked = Episode(ToyWorld().spec, GOAL).request(Observation(frames))
    assert np.array_equal(asked.observation.frames, frames[1:])


@pytest.mark.parametrize(("action", "words"), [(np.zeros(3), "shape"), (np.array([np.nan, 0.0]), "NaN")])
def test_an_executed_action_that_cannot_be_is_refused(action: np.ndarray, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        Episode(ToyWorld().spec, GOAL).executed(action)
