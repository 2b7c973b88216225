"""The camera averages 2 x 2 blocks, opens its GL late, and says what to do where there is no GL."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from envs.camera import TopCamera
from envs.goal_env import load_scene


@pytest.fixture
def scene():
    model = load_scene("push.xml")
    data = mujoco.MjData(model)
    data.qpos[:] = [-0.1, 0.0, 0.1, 0.1]
    mujoco.mj_forward(model, data)
    return model, data


@pytest.mark.render
def test_a_picture_shows_the_bodies_where_they_are(scene):
    model, data = scene
    camera = TopCamera(model, 64)
    picture = camera.picture(data)
    camera.close()
    middle = {"pusher": (32, int(32 - 0.1 / 0.48 * 64)), "puck": (int(32 - 0.1 / 0.48 * 64), int(32 + 0.1 / 0.48 * 64))}
    red, _, blue = picture[middle["pusher"]].astype(int)
    assert red > blue + 100
    red, _, blue = picture[middle["puck"]].astype(int)
    assert blue > red + 100
    assert picture[32, 45].min() > 200  # the field is light
    assert picture[1, 32].max() < 90  # its border is dark


@pytest.mark.render
def test_edges_are_antialiased_and_follow_motion_below_a_pixel(scene):
    model, data = scene
    camera = TopCamera(model, 64)
    before = camera.picture(data).astype(int)
    data.qpos[2] += 0.25 * 0.48 / 64
    mujoco.mj_forward(model, data)
    after = camera.picture(data).astype(int)
    camera.close()
    assert np.abs(after - before).sum() > 0
    column = before[:, 45, 0]
    assert len(np.unique(column)) >= 3


@pytest.mark.render
def test_a_picture_is_the_rounded_mean_of_four(scene, monkeypatch):
    model, data = scene
    large = np.random.default_rng(0).integers(0, 256, size=(16, 16, 3), dtype=np.uint8)
    camera = TopCamera(model, 8)
    camera.picture(data)
    monkeypatch.setattr(camera._renderer, "render", lambda: large)
    mean = large.reshape(8, 2, 8, 2, 3).astype(float).mean(axis=(1, 3))
    assert np.array_equal(camera.picture(data), np.floor(mean + 0.5).astype(np.uint8))
    camera.close()


def test_a_machine_without_gl_gets_the_cure(scene, monkeypatch):
    def fail(*args):
        raise ImportError("Cannot initialize a EGL device display")

    monkeypatch.setattr("mujoco.Renderer", fail)
    camera = TopCamera(scene[0], 64)  # no GL needed yet
    with pytest.raises(RuntimeError, match=r"EGL device display.*apt-get install libegl1.*MUJOCO_GL=egl"):
        camera.picture(scene[1])
    camera.close()
