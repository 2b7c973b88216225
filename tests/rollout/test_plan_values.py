"""Requests that do not fit the model are refused, with value and cure; those that do become tensors [1, ...]."""

import numpy as np
import pytest
import torch
from planning_worlds import Glider, Proprioceptive, Slow, request

from mstar_plan.errors import InvalidInputError
from mstar_plan.models.toy import ToyWorld, render
from mstar_plan.models.world_model import ModelSpec
from mstar_plan.rollout.limits import PlanDefaults
from mstar_plan.rollout.plan_values import walk_values
from mstar_plan.types import Goal, Observation, PlanRequest, WarmStart

SIZES = PlanDefaults(horizon=4, iterations=3, samples=16)
TOY, GLIDER, SLOW, FELT = ToyWorld().spec, Glider().spec, Slow().spec, Proprioceptive().spec
FRAME = render(np.zeros(2))


def values(asked: PlanRequest, spec: ModelSpec = TOY) -> dict:
    return walk_values(asked, spec, SIZES, fewest_samples=8)


def warm(horizon: int = 4, elites: int = 2, size: float = 0.1) -> WarmStart:
    return WarmStart(np.full((horizon, 2), size), np.full((elites, horizon, 2), size))


def test_shapes() -> None:
    found = values(request().but(warm_start=warm(), context_actions=np.zeros((1, 2))))
    assert found["frames"].shape == (1, 1, 64, 64, 3)
    assert found["frames"].dtype == torch.uint8
    assert found["goal_frames"].shape == (1, 1, 64, 64, 3)
    assert found["warm_mean"].shape == (1, 4, 2)
    assert found["warm_elites"].shape == (1, 2, 4, 2)
    assert (found["state"], found["context_latents"], found["context_actions"]) == (None, None, None)
    assert found["last_action"] is None, "without a rate limit it must not keep requests from joining"


def test_frames_are_copied_and_may_be_read_only() -> None:
    frames = FRAME[None].copy()
    asked = PlanRequest(Observation(frames), Goal(frame=FRAME))
    found = values(asked)
    frames[:] = 7
    assert not torch.equal(found["frames"][0], torch.from_numpy(frames))
    frames.flags.writeable = False
    values(asked)


def test_the_last_action_counts_under_a_rate_limit() -> None:
    asked = request().but(context_actions=np.array([[0.3, -0.2]]))
    torch.testing.assert_close(values(asked, SLOW)["last_action"], torch.tensor([[0.3, -0.2]]))
    assert values(request(), SLOW)["last_action"] is None


def test_a_model_of_two_frames_gets_its_context() -> None:
    earlier = np.zeros((1, 1, 2), np.float32)
    found = values(request().but(context_latents=earlier, context_actions=np.zeros((1, 2))), GLIDER)
    assert found["context_latents"].shape == (1, 1, 1, 2)
    assert found["context_actions"].shape == (1, 1, 2)
    both = PlanRequest(Observation(np.stack([FRAME, FRAME])), Goal(frame=FRAME), context_actions=np.zeros((1, 2)))
    assert values(both, GLIDER)["frames"].shape[:2] == (1, 2)


def test_proprioception_reaches_the_models_that_want_it() -> None:
    felt = PlanRequest(Observation(FRAME[None], state=[0.1, 0.2]), Goal(latent=np.zeros((1, 2))))
    torch.testing.assert_close(values(felt, FELT)["state"], torch.tensor([[0.1, 0.2]]))
    assert values(felt)["state"] is None
    assert values(felt)["goal_latent"].shape == (1, 1, 1, 2)


SMALL = np.zeros((48, 64, 3), np.uint8)
NAN = np.full((1, 2), np.nan)
BASE = request()


@pytest.mark.parametrize(
    ("asked", "spec", "field", "words"),
    [
        (
            BASE.but(observation=Observation(SMALL[None])),
            TOY,
            "observation.frames",
            "48x64 pixels; model 'toy' sees 64x64",
        ),
        (BASE.but(goal=Goal(frame=SMALL)), TOY, "goal.frame", "48x64 pixels"),
        (BASE.but(goal=Goal(latent=np.zeros((2, 2)))), TOY, "goal.latent", r"needs \(1, 2\)"),
        (BASE.but(goal=Goal(state=np.zeros(2))), TOY, "goal.state", "give goal.frame"),
        (BASE.but(observation=Observation(np.stack([FRAME] * 2))), TOY, "observation.frames", "has 2 frames"),
        (BASE.but(context_latents=np.zeros((1, 3, 3))), TOY, "context_latents", "as encode gave them"),
        (BASE.but(context_latents=np.zeros((1, 1, 2))), TOY, "observation.frames", "has 2 frames"),
        (BASE, GLIDER, "observation.frames", "sees 2: send 2, oldest first"),
        (BASE.but(context_latents=np.zeros((1, 1, 2))), GLIDER, "context_actions", "is missing"),
        (BASE.but(context_actions=NAN), TOY, "context_actions", "NaN"),
        (BASE.but(context_actions=np.zeros((2, 2))), TOY, "context_actions", r"needs \[1, 2\]"),
        (BASE.but(context_actions=np.full((1, 2), 1.5)), TOY, "context_actions", "outside the bounds"),
        (BASE, FELT, "observation.state", "is missing"),
        (BASE.but(observation=Observation(FRAME[None], state=[1.0])), FELT, "observation.state", r"shape \(1,\)"),
        (BASE.but(warm_start=warm(horizon=5)), TOY, "warm_start", "keep the horizon"),
        (BASE.but(warm_start=warm(size=1.2)), TOY, "warm_start", "outside the bounds"),
        (BASE.but(warm_start=warm(elites=15)), TOY, "samples", "at least 17"),
    ],
)
def test_what_does_not_fit_is_refused(asked: PlanRequest, spec: ModelSpec, field: str, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words) as error:
        values(asked, spec)
    assert error.value.field == field


def test_fewer_candidates_than_the_planner_needs_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="samples is 7; this planner needs at least 8"):
        walk_values(BASE, TOY, PlanDefaults(4, 3, 7), fewest_samples=8)
