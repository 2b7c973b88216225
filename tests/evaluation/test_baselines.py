"""Random actions follow from their seed and stay in bounds; no action is no action."""

import numpy as np

from mstar_plan.evaluation.baselines import NoOpController, RandomController
from mstar_plan.types import ActionSpec, Controller, Goal, Observation

OBSERVATION = Observation(frames=np.zeros((1, 4, 4, 3), np.uint8))
GOAL = Goal(frame=np.zeros((4, 4, 3), np.uint8))
ACTION = ActionSpec(low=[-1.0, 2.0], high=[1.0, 6.0], dt_s=0.1)


def _actions(controller, seed, count=200):
    controller.reset(GOAL, seed=seed)
    return np.stack([controller.act(OBSERVATION) for _ in range(count)])


def test_random_actions_fill_the_bounds():
    actions = _actions(RandomController(ACTION), 0)
    assert actions.dtype == np.float32
    assert (actions >= ACTION.low).all()
    assert (actions <= ACTION.high).all()
    assert np.allclose(actions.mean(axis=0), [0, 4], atol=0.3)


def test_random_actions_follow_from_the_seed():
    controller = RandomController(ACTION)
    first = _actions(controller, 5)
    assert (first == _actions(controller, 5)).all()
    assert (first != _actions(controller, 6)).any()


def test_no_action_is_nearest_to_zero():
    assert _actions(NoOpController(ACTION), 0, 1).tolist() == [[0.0, 2.0]]


def test_both_are_controllers():
    assert isinstance(RandomController(ACTION), Controller)
    assert isinstance(NoOpController(ACTION), Controller)
    assert RandomController(ACTION).last_plan is None
