"""The base of the tasks: a robot seen from above is to bring a point of the scene to where a goal image shows it.

Shapes: K candidates, H steps, A actions (2), P proprioception, G task position (2).
"""

from __future__ import annotations

from abc import abstractmethod
from importlib import resources
from typing import Any, ClassVar

import gymnasium
import mujoco
import numpy as np
from gymnasium import spaces
from numpy.typing import ArrayLike, NDArray

from envs.camera import TopCamera
from envs.exploration import Behaviour, Vector
from envs.simulation import BatchSimulator

IMAGE_SIZE = 64  # px
SUBSTEPS = 10  # of 0.01 s: one action is held for 0.1 s
DT_S = 0.1


class GoalEnv(gymnasium.Env[dict[str, NDArray[Any]], NDArray[np.float32]]):
    """A goal-conditioned task on pixels at 10 Hz.

    Observation: `image` and `goal_image` [64, 64, 3] uint8 RGB; `state` [P] float32, the robot's own joints;
    `achieved_goal` and `desired_goal` [G] float64, metres. Action: [A] float32 in [-1, 1], 1 being full speed.
    Reward: minus the distance in metres. Success does not end an episode: `info["is_success"]` of the last step
    is what counts. docs/tasks.md tells the protocols.

    Args:
        render_mode: None or "rgb_array".
        render_size: Side in pixels of what `render` returns.

    Raises:
        ValueError: Another render mode, or a size below 1.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 10}
    scene: ClassVar[str]  # file name in envs/assets
    success_distance: ClassVar[float]  # m
    action_names: ClassVar[tuple[str, ...]]
    action_units: ClassVar[tuple[str, ...]]  # of full speed, which an action is a fraction of
    goal_limit: ClassVar[float]  # m; task positions lie in [-limit, limit]
    state_limit: ClassVar[tuple[float, ...]]  # [P]

    def __init__(self, render_mode: str | None = None, render_size: int = 256) -> None:
        if render_mode not in (None, "rgb_array"):
            raise ValueError(f"render_mode is {render_mode!r}; use None or 'rgb_array'")
        _check_size(render_size, "render_size")
        self.render_mode = render_mode
        self._render_size = render_size
        self.model = load_scene(self.scene)
        self.data = mujoco.MjData(self.model)
        self._scratch = mujoco.MjData(self.model)
        self._camera = TopCamera(self.model, IMAGE_SIZE)
        self._large_camera: TopCamera | None = None
        self._simulator: BatchSimulator | None = None
        self._behaviour: Behaviour | None = None
        self._desired_goal = np.zeros(2)
        self._goal_image = np.zeros((IMAGE_SIZE, IMAGE_SIZE, 3), np.uint8)
        self.full_speed: Vector = self.model.actuator_ctrlrange[:, 1].copy()  # [A], in the units of an action
        image = spaces.Box(0, 255, (IMAGE_SIZE, IMAGE_SIZE, 3), np.uint8)
        position = spaces.Box(-self.goal_limit, self.goal_limit, (2,), np.float64)
        state_limit = np.asarray(self.state_limit, np.float32)
        self.observation_space = spaces.Dict(
            {
                "image": image,
                "state": spaces.Box(-state_limit, state_limit, dtype=np.float32),
                "achieved_goal": position,
                "desired_goal": position,
                "goal_image": image,
            }
        )
        self.action_space = spaces.Box(-1.0, 1.0, (self.model.nu,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Starts an episode with a new start and a new goal, both functions of the seed.

        Raises:
            ValueError: Any option: there are none.
        """
        if options:
            raise ValueError(f"reset got options {sorted(options)}; the tasks have none, leave them out")
        super().reset(seed=seed)
        self._behaviour = None
        start, goal = self._draw_episode(self.np_random)
        self._desired_goal = self._task_position(goal)
        self._place(self._scratch, goal)
        self._goal_image = self._picture(self._scratch, self._camera)
        self._place(self.data, start)
        return self._observe(), self._info()

    def step(self, action: NDArray[np.float32]) -> tuple[dict[str, NDArray[Any]], float, bool, bool, dict[str, Any]]:
        """Holds one action for 0.1 s.

        Args:
            action: [A] in [-1, 1].

        Raises:
            ValueError: Another shape, NaN, infinity, or a value outside the bounds (nothing is clipped).
        """
        checked = self._checked(action, "action", (self.model.nu,))
        self.data.ctrl[:] = checked * self.full_speed
        mujoco.mj_step(self.model, self.data, SUBSTEPS)
        info = self._info()
        return self._observe(), -info["distance"], False, False, info

    def render(self) -> NDArray[np.uint8] | None:
        """Returns [render_size, render_size, 3] uint8 RGB, or None without a render mode."""
        return self.render_pixels(self._render_size) if self.render_mode == "rgb_array" else None

    def render_pixels(self, size: int) -> NDArray[np.uint8]:
        """Returns [size, size, 3] uint8 RGB of the present state, from the camera that the observations come from.

        Raises:
            ValueError: A size that is not a whole number from 1 to 2048.
        """
        return self._picture(self.data, self._camera_of(size))

    def render_goal(self, size: int) -> NDArray[np.uint8]:
        """Returns [size, size, 3] uint8 RGB of the goal, like `render_pixels`.

        Raises:
            ValueError: A size that is not a whole number from 1 to 2048.
        """
        return self._picture(self._scratch, self._camera_of(size))  # it stays at the goal that `reset` drew

    def simulate(self, actions: ArrayLike) -> Vector:
        """Rolls action sequences out from the present state with the true physics, and leaves the episode as it is.

        Args:
            actions: [K, H, A] in [-1, 1].

        Returns:
            [K, H, G] task position after each step, metres.

        Raises:
            ValueError: As `step` does.
        """
        actions_KHA = self._checked(actions, "actions", (None, None, self.model.nu))
        if self._simulator is None:
            self._simulator = BatchSimulator(self.model, SUBSTEPS)
        return self._task_position(self._simulator.run(self.data, actions_KHA * self.full_speed))

    def explore(self, rng: np.random.Generator) -> NDArray[np.float32]:
        """Returns the next action [A] of a behaviour that collects data; which behaviour is drawn once an episode."""
        if self._behaviour is None:
            self._behaviour = self._draw_behaviour(rng)
        return np.clip(self._behaviour(rng, self.data.qpos.copy()), -1.0, 1.0).astype(np.float32)

    def close(self) -> None:
        """Frees the GL contexts and threads; a second call does nothing."""
        self._camera.close()
        if self._large_camera is not None:
            self._large_camera.close()
            self._large_camera = None
        if self._simulator is not None:
            self._simulator.close()
            self._simulator = None

    @abstractmethod
    def _draw_episode(self, rng: np.random.Generator) -> tuple[Vector, Vector]:
        """Returns joint positions [nq] of the start and of a goal that is reachable and not yet reached."""

    @abstractmethod
    def _task_position(self, qpos: Vector) -> Vector:
        """Returns the scored position [..., G] in metres for joint positions [..., nq]."""

    @abstractmethod
    def _proprioception(self) -> Vector:
        """Returns what the robot senses of itself, [P]."""

    @abstractmethod
    def _draw_behaviour(self, rng: np.random.Generator) -> Behaviour:
        """Returns the exploration behaviour of one episode."""

    def _place(self, data: mujoco.MjData, qpos: Vector) -> None:
        """Puts `data` at rest at `qpos`."""
        mujoco.mj_resetData(self.model, data)
        data.qpos[:] = qpos

    def _picture(self, data: mujoco.MjData, camera: TopCamera) -> NDArray[np.uint8]:
        # A step leaves the poses of its last substep's start; this brings them to now and touches nothing else.
        mujoco.mj_kinematics(self.model, data)
        mujoco.mj_camlight(self.model, data)
        return camera.picture(data)

    def _camera_of(self, size: int) -> TopCamera:
        _check_size(size, "size")
        if self._large_camera is None or self._large_camera.size != size:
            if self._large_camera is not None:
                self._large_camera.close()
            self._large_camera = TopCamera(self.model, size)
        return self._large_camera

    def _observe(self) -> dict[str, NDArray[Any]]:
        return {
            "image": self._picture(self.data, self._camera),
            "state": self._proprioception().astype(np.float32),
            "achieved_goal": self._task_position(self.data.qpos.copy()),
            "desired_goal": self._desired_goal.copy(),
            "goal_image": self._goal_image.copy(),
        }

    def _info(self) -> dict[str, Any]:
        distance = float(np.linalg.norm(self._task_position(self.data.qpos) - self._desired_goal))
        return {"is_success": distance < self.success_distance, "distance": distance}

    def _checked(self, value: ArrayLike, name: str, shape: tuple[int | None, ...]) -> Vector:
        try:
            array = np.asarray(value, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{name} is not an array of numbers ({error}); send numbers in [-1, 1]") from error
        fits = array.ndim == len(shape) and all(w in (None, n) for w, n in zip(shape, array.shape, strict=True))
        if not fits or array.size == 0:
            wanted = ", ".join("n" if n is None else str(n) for n in shape)
            raise ValueError(f"{name} has shape {array.shape}; it needs [{wanted}] for {self.action_names}")
        if not np.isfinite(array).all():
            raise ValueError(f"{name} has values that are not finite; send numbers in [-1, 1]")
        if np.abs(array).max() > 1.0 + 1e-6:
            raise ValueError(f"{name} reaches {np.abs(array).max():.4g}; it must stay in [-1, 1] (1 is full speed)")
        return array


def load_scene(name: str) -> mujoco.MjModel:
    """Returns the compiled scene `name` of envs/assets."""
    assets = resources.files("envs") / "assets"
    common = (assets / "common.xml").read_bytes()
    return mujoco.MjModel.from_xml_string((assets / name).read_text(), {"common.xml": common})


def _check_size(size: int, name: str) -> None:
    if not (isinstance(size, int) and 1 <= size <= 2048):
        raise ValueError(f"{name} is {size!r}; it needs a whole number of pixels from 1 to 2048")
