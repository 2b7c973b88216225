"""The toy world: what it draws is what it reads, and its best plan has no better neighbour."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mstar_plan.errors import InvalidInputError
from mstar_plan.models.toy import DT_S, IMAGE_SIZE, ToyWorld, best_plan, render

places = st.tuples(*[st.floats(-1, 1, width=32)] * 2)


def roll(start, actions):
    """Positions [..., H, 2] after each action, through the model."""
    model = ToyWorld()
    actions = torch.as_tensor(np.array(actions), dtype=torch.float32).reshape(1, -1, *np.shape(actions)[-2:])
    latent, state, cache = model.begin(torch.tensor([[[start]]], dtype=torch.float32), None, None, *actions.shape[1:3])
    path = []
    for h in range(actions.shape[2]):
        latent, state, cache = model.predict(latent, state, actions[:, :, h], cache)
        path.append(latent[0, :, 0])
    return torch.stack(path, dim=1).numpy()


@given(places)
def test_encode_reads_what_render_draws(place):
    latent = ToyWorld().encode(torch.from_numpy(render(place))[None])
    assert latent.shape == (1, 1, 2)
    assert np.abs(latent[0, 0].numpy() - place).max() < 2e-3


def test_render_is_smooth_bright_and_right_way_up():
    image = render([0.5, 0.5])
    assert image.shape == (IMAGE_SIZE, IMAGE_SIZE, 3)
    assert image.dtype == np.uint8
    assert image.max() > 200
    row, column = np.unravel_index(image[..., 0].argmax(), image.shape[:2])
    assert row < IMAGE_SIZE / 2 < column
    assert not np.array_equal(image, render([0.501, 0.5]))  # antialiased: less than a tenth of a pixel shows


def test_black_and_bad_input_are_refused():
    with pytest.raises(InvalidInputError, match="black"):
        ToyWorld().encode(torch.zeros(1, IMAGE_SIZE, IMAGE_SIZE, 3, dtype=torch.uint8))
    for bad in ([2.0, 0.0], [np.nan, 0.0], [0.0], [[0.0, 0.0]]):
        with pytest.raises(InvalidInputError):
            render(bad)
    with pytest.raises(InvalidInputError, match="horizon"):
        best_plan([0, 0], [1, 1], 0)


def test_nothing_is_clamped():
    assert roll([0.9, 0.0], [[[5.0, 0.0]]])[0, 0] == pytest.approx([1.4, 0.0])


def test_best_plan_reaches_and_rests():
    plan = best_plan([0.0, 0.0], [0.25, -0.1], 5)
    np.testing.assert_allclose(plan, [[1, -1], [1, 0], [0.5, 0], [0, 0], [0, 0]], atol=1e-6)
    np.testing.assert_allclose(roll([0.0, 0.0], plan[None])[0, 2:], [[0.25, -0.1]] * 3, atol=1e-6)


@settings(max_examples=25, deadline=None)
@given(places, places, st.integers(1, 8), st.integers(0, 2**31))
def test_no_plan_in_the_bounds_is_better(start, goal, horizon, seed):
    rng = np.random.default_rng(seed)
    plan = best_plan(start, goal, horizon)
    assert np.abs(plan).max() <= 1
    near = np.clip(plan + rng.normal(size=(200, horizon, 2)) * rng.choice([0.05, 0.5], size=(200, 1, 1)), -1, 1)
    paths = roll(start, np.concatenate([plan[None], near.astype(np.float32)]))
    distance = np.linalg.norm(paths - np.asarray(goal, np.float32), axis=-1)
    for cost in (distance.mean(-1), distance[:, -1], distance.min(-1), np.square(distance).sum(-1)):
        assert cost[0] <= cost[1:].min() + 1e-5
    assert DT_S == 0.1
