"""Batched rollouts of a scene's true state, for oracles that plan with the simulator itself."""

from __future__ import annotations

import mujoco
import mujoco.rollout
import numpy as np
from numpy.typing import NDArray

_STATE = mujoco.mjtState.mjSTATE_FULLPHYSICS  # time, qpos, qvel, ... in this order


class BatchSimulator:
    """Runs many control sequences from one state, in a copy of it.

    Args:
        model: The scene.
        substeps: Physics steps that one control is held.
    """

    def __init__(self, model: mujoco.MjModel, substeps: int) -> None:
        self._model = model
        self._scratch = mujoco.MjData(model)
        self._rollout = mujoco.rollout.Rollout(nthread=0)
        self._substeps = substeps

    def run(self, data: mujoco.MjData, controls_KHU: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns [K, H, nq] joint positions after each of the [K, H, U] controls; `data` stays as it is."""
        samples, horizon, _ = controls_KHU.shape
        start = np.empty(mujoco.mj_stateSize(self._model, _STATE))
        mujoco.mj_getState(self._model, data, start, _STATE)
        states, _ = self._rollout.rollout(
            self._model,
            self._scratch,
            np.tile(start, (samples, 1)),
            np.repeat(controls_KHU, self._substeps, axis=1),
            initial_warmstart=np.tile(data.qacc_warmstart, (samples, 1)),
        )
        after = states.reshape(samples, horizon, self._substeps, -1)[:, :, -1]
        return after[..., 1 : 1 + self._model.nq]

    def close(self) -> None:
        """Ends the threads, if there are any."""
        self._rollout.close()
