"""Batched rollouts agree with stepping one by one, contacts included."""

from __future__ import annotations

import copy

import mujoco
import numpy as np

from envs.goal_env import load_scene
from envs.simulation import BatchSimulator


def test_every_rollout_is_what_stepping_gives():
    model = load_scene("push.xml")
    data = mujoco.MjData(model)
    data.qpos[:] = [-0.08, 0.0, 0.0, 0.01]
    data.ctrl[:] = [0.3, 0.1]
    mujoco.mj_step(model, data, 12)
    assert data.ncon == 1  # in the middle of a push, where the solver's warm start matters
    controls = np.random.default_rng(0).uniform(-0.4, 0.4, size=(6, 4, 2))
    controls[0] = [0.4, 0.0]  # straight into the puck
    simulator = BatchSimulator(model, 10)
    together = simulator.run(data, controls)
    assert together.shape == (6, 4, 4)
    assert together[0, -1, 2] > 0.02
    for k in range(6):
        alone = copy.copy(data)
        for h in range(4):
            alone.ctrl[:] = controls[k, h]
            mujoco.mj_step(model, alone, 10)
            assert np.array_equal(together[k, h], alone.qpos)
    assert np.array_equal(simulator.run(data, controls[2:3])[0], together[2])
    simulator.close()
