"""Objectives against their formulas in numpy float64."""

import numpy as np
import pytest
import torch

from mstar_plan.errors import ConfigError
from mstar_plan.rollout.objective import (
    DISTANCES,
    LatentObjective,
    Objective,
    ObjectiveConfig,
    energy_of,
    make_objective,
)

RANDOM = np.random.default_rng(0)
EMBEDDED, GOAL, ACTIONS = (
    RANDOM.normal(size=(2, 5, 4, 6)),
    RANDOM.normal(size=(2, 6)),
    RANDOM.uniform(-1, 1, (2, 5, 4, 3)),
)


def reference(distance: str, eps: float) -> np.ndarray:
    goal = GOAL[:, None, None]
    match distance:
        case "l1":
            return np.abs(EMBEDDED - goal).mean(-1)
        case "l2":
            return np.sqrt(((EMBEDDED - goal) ** 2).sum(-1) + eps)
        case "squared":
            return ((EMBEDDED - goal) ** 2).mean(-1)
        case _:
            lengths = np.linalg.norm(EMBEDDED, axis=-1) * np.linalg.norm(goal, axis=-1)
            return 1 - (EMBEDDED * goal).sum(-1) / lengths


def cost(config: ObjectiveConfig, rows: slice = slice(None)) -> np.ndarray:
    values = (torch.from_numpy(x[rows].astype(np.float32)) for x in (EMBEDDED, GOAL, ACTIONS))
    return make_objective(config)(*values).numpy()


@pytest.mark.parametrize("distance", DISTANCES)
def test_distances(distance: str) -> None:
    d = reference(distance, 0.01)
    np.testing.assert_allclose(cost(ObjectiveConfig(distance=distance, eps=0.01)), d.mean(2), rtol=1e-5)


@pytest.mark.parametrize(
    ("weight", "reduce"),
    [
        ("mean", lambda d: d.mean(2)),
        ("final", lambda d: d[:, :, -1]),
        ("minimum", lambda d: d.min(2)),
        ("total", lambda d: d.sum(2)),
    ],
)
def test_reductions(weight: str, reduce) -> None:
    config = ObjectiveConfig(**{"mean": 0.0, weight: 0.7})
    np.testing.assert_allclose(cost(config), 0.7 * reduce(reference("l2", 1e-4)), rtol=1e-5)


@pytest.mark.parametrize("distance", DISTANCES)
def test_the_last_frame_alone_is_looked_at_where_only_it_counts(distance: str) -> None:
    objective, seen = LatentObjective(ObjectiveConfig(distance=distance, mean=0.0, final=1.0)), []
    plain = objective.distance
    objective.distance = lambda embedded, goal, eps: seen.append(embedded.shape) or plain(embedded, goal, eps)
    found = objective(*(torch.from_numpy(x.astype(np.float32)) for x in (EMBEDDED, GOAL, ACTIONS)))
    assert seen == [(2, 5, 1, 6)]
    np.testing.assert_allclose(found, reference(distance, 1e-4)[:, :, -1], rtol=1e-5)


def test_the_energy_of_an_objective_has_no_weights_and_no_penalties() -> None:
    energy = energy_of(ObjectiveConfig(distance="cosine", eps=0.5, mean=0.3, minimum=2.0, action=1.0, change=1.0))
    assert energy == ObjectiveConfig(distance="cosine", eps=0.5, mean=0.0, final=1.0)


def test_mixture_and_penalties() -> None:
    config = ObjectiveConfig(mean=0.3, minimum=1.0, action=0.2, change=0.5)
    d = reference("l2", 1e-4)
    expected = 0.3 * d.mean(2) + d.min(2) + 0.2 * (ACTIONS**2).mean((2, 3))
    expected += 0.5 * (np.diff(ACTIONS, axis=2) ** 2).mean((2, 3))
    np.testing.assert_allclose(cost(config), expected, rtol=1e-5)


def test_a_row_alone_equals_the_row_in_a_batch() -> None:
    for distance in DISTANCES:
        config = ObjectiveConfig(distance=distance, minimum=0.5, action=0.1)
        np.testing.assert_allclose(cost(config, slice(1, 2)), cost(config)[1:], rtol=1e-6)


def test_one_action_has_no_change_to_pay_for() -> None:
    objective = make_objective(ObjectiveConfig(change=1.0))
    goal = torch.zeros(1, 3)
    assert objective(torch.zeros(1, 2, 1, 3), goal, torch.ones(1, 2, 1, 2)).isfinite().all()


def test_it_is_an_objective() -> None:
    assert isinstance(LatentObjective(ObjectiveConfig()), Objective)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"distance": "manhattan"}, "known: cosine, l1, l2, squared"),
        ({"mean": 0.0}, "no weight on the distance"),
        ({"action": -1.0}, "action is -1"),
        ({"eps": float("nan")}, "eps is nan"),
    ],
)
def test_wrong_settings_are_refused(values: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ObjectiveConfig(**values)
