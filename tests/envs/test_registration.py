"""The package registers its tasks, prepares MuJoCo's GL, and needs nothing of mstar_plan or torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import gymnasium
import pytest

import envs

_PROBE = """
import json, os, sys
import gymnasium
env = gymnasium.make("envs:mstar/Push-v0")
heavy = [name for name in ("torch", "mstar_plan", "PIL") if name in sys.modules]
print(json.dumps({"gl": os.environ["MUJOCO_GL"], "heavy": heavy, "steps": env.spec.max_episode_steps}))
"""


def _probe(**changes: str | None) -> dict[str, object]:
    environment = {k: v for k, v in os.environ.items() if changes.get(k, v) is not None} | {
        k: v for k, v in changes.items() if v is not None
    }
    run = subprocess.run([sys.executable, "-c", _PROBE], env=environment, capture_output=True, text=True, check=True)
    return json.loads(run.stdout)


@pytest.mark.parametrize(("task", "steps"), [("Reach", 30), ("Wall", 40), ("Push", 40)])
def test_a_task_ends_by_time_alone(task, steps):
    assert gymnasium.spec(f"mstar/{task}-v0").max_episode_steps == steps
    assert f"mstar/{task}-v0" in envs.TASKS


@pytest.mark.skipif(sys.platform != "linux", reason="EGL is Linux's")
def test_egl_is_the_default_and_nothing_heavy_is_imported():
    assert _probe(MUJOCO_GL=None) == {"gl": "egl", "heavy": [], "steps": 40}


def test_the_users_choice_of_gl_stays():
    assert _probe(MUJOCO_GL="disable")["gl"] == "disable"
