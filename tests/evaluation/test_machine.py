"""A machine describes itself, in JSON, and asks for nothing heavy."""

import json
import subprocess
import sys

import gymnasium
import pytest

from mstar_plan.evaluation.machine import describe_machine, gl_renderer, package_versions


def test_description_is_json_and_has_what_a_reader_needs():
    machine = describe_machine(device="cuda:0", gl="a renderer")
    assert json.loads(json.dumps(machine)) == machine
    assert machine["cores"] >= machine["cores_usable"] >= 1
    assert machine["cpu"]
    assert machine["memory_gib"] > 0
    assert (machine["device"], machine["gl_renderer"]) == ("cuda:0", "a renderer")
    assert machine["date"].endswith("+00:00")


def test_versions_name_what_is_installed():
    versions = package_versions()
    assert {"python", "numpy", "gymnasium", "mujoco"} <= set(versions)
    assert versions["python"].count(".") == 2


@pytest.mark.render
def test_renderer_has_a_name_while_a_camera_is_open():
    env = gymnasium.make("envs:mstar/Reach-v0")
    env.reset(seed=0)
    assert gl_renderer()
    env.close()


def test_evaluation_runs_without_torch():
    code = (
        "import sys; import mstar_plan.evaluation.runner, mstar_plan.evaluation.report, mstar_plan.evaluation.video, "
        "mstar_plan.evaluation.oracle, mstar_plan.evaluation.console; "
        "from mstar_plan.evaluation.machine import describe_machine; "
        "assert describe_machine()['torch_threads'] is None; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
