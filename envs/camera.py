"""Pictures of a scene from above, antialiased by rendering twice as large and averaging: cheaper than multisampling."""

from __future__ import annotations

import mujoco
import numpy as np
from numpy.typing import NDArray


class TopCamera:
    """Renders one model; the GL context is made at the first picture and freed by `close`.

    A context that is alive before `torch._dynamo` is first imported can crash the process, hence so late.

    Args:
        model: What to render; it needs a camera named "top".
        size: Side of the picture in pixels.
    """

    def __init__(self, model: mujoco.MjModel, size: int) -> None:
        self._model = model
        self._renderer: mujoco.Renderer | None = None
        self.size = size

    def picture(self, data: mujoco.MjData) -> NDArray[np.uint8]:
        """Returns [size, size, 3] uint8 RGB of `data`, whose body poses must be up to date.

        Raises:
            RuntimeError: This machine has no working offscreen GL.
        """
        if self._renderer is None:
            self._renderer = self._open()
        self._renderer.update_scene(data, camera="top")
        large = self._renderer.render()
        # The mean of each 2 x 2 block, rounded to nearest; slices are several times faster than a reshape and sum.
        rows = large[0::2].astype(np.uint16) + large[1::2]
        return ((rows[:, 0::2] + rows[:, 1::2] + 2) >> 2).astype(np.uint8)

    def close(self) -> None:
        """Frees the GL context; the next picture makes a new one."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None

    def _open(self) -> mujoco.Renderer:
        side = 2 * self.size
        self._model.vis.global_.offwidth = self._model.vis.global_.offheight = side
        try:
            renderer = mujoco.Renderer(self._model, side, side)
        except Exception as error:  # each GL backend raises its own
            raise RuntimeError(
                f"MuJoCo cannot render offscreen ({error}); on Debian run `apt-get install libegl1 libegl-mesa0 "
                "libgl1-mesa-dri`, and set MUJOCO_GL=egl before mujoco is imported"
            ) from error
        flags = mujoco.mjtRndFlag
        for flag in (flags.mjRND_SHADOW, flags.mjRND_REFLECTION, flags.mjRND_SKYBOX):
            renderer.scene.flags[flag] = 0
        return renderer
