"""Checks of the machine: what was found, whether it will do, and the cure where it will not.

Heavy libraries are asked in processes of their own, side by side: a rendering context that crashes cannot take the
doctor along, and the answers come in the time of the slowest one.
"""

from __future__ import annotations

import enum
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from mstar_plan.config import options

PACKAGES = ("torch", "numpy", "mujoco", "gymnasium", "grpcio", "protobuf", "omegaconf", "safetensors", "pillow")
WEIGHTS = Path(__file__).parent / "models" / "pretrained"
PROBE_TIMEOUT_S = 60.0

_TORCH = """
import json, os, torch
cuda = torch.cuda.is_available()
print(json.dumps({"version": torch.__version__, "device": torch.cuda.get_device_name() if cuda else "cpu",
                  "threads": torch.get_num_threads()}))
"""
_RENDER = """
import json, time, mujoco
box = '<geom type="box" size=".1 .1 .1" rgba="1 0 0 1"/>'
model = mujoco.MjModel.from_xml_string(
    '<mujoco><visual><quality shadowsize="0" offsamples="0"/></visual><worldbody><light pos="0 0 2"/>' + box +
    '<camera name="c" pos="0 -1 0" xyaxes="1 0 0 0 0 1"/></worldbody></mujoco>')
data = mujoco.MjData(model)
mujoco.mj_forward(model, data)
renderer = mujoco.Renderer(model, 64, 64)
renderer.update_scene(data, camera="c")
renderer.render()
start = time.perf_counter()
for _ in range(10):
    pixels = renderer.render()
ms = (time.perf_counter() - start) * 100
try:
    from OpenGL import GL
    name = GL.glGetString(GL.GL_RENDERER).decode()
except Exception:
    name = "unknown renderer"
renderer.close()
print(json.dumps({"red": int(pixels[32, 32, 0]), "ms": ms, "renderer": name}))
"""
_VIDEO = """
import json, imageio_ffmpeg
print(json.dumps({"ffmpeg": imageio_ffmpeg.get_ffmpeg_version()}))
"""


class Verdict(enum.Enum):
    """What a check means for the user."""

    OK = "ok"
    WARNING = "warning"  # it works, but slower or without a side dish
    PROBLEM = "problem"  # something essential does not work


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's report.

    Attributes:
        name: What was checked.
        verdict: Whether it will do.
        found: What was found.
        cure: What to do; empty where nothing is wrong.
    """

    name: str
    verdict: Verdict
    found: str
    cure: str = ""


Probe = Callable[[str], Mapping[str, Any]]


def run_probe(code: str) -> Mapping[str, Any]:
    """Runs Python code in a new process and returns the JSON object on its last line of output.

    Returns:
        The object; or {"error": last line of what went wrong} if it failed, crashed or took too long.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return {"error": f"no answer within {PROBE_TIMEOUT_S:.0f} s"}
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        return {"error": lines[-1] if lines else f"the process ended with code {done.returncode}"}
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def examine(probe: Probe = run_probe) -> list[Finding]:
    """Examines this machine.

    Args:
        probe: Runs a piece of code elsewhere; `run_probe` by default.

    Returns:
        One finding a check, in the order that a reader wants them.
    """
    with ThreadPoolExecutor(3) as pool:
        torch, render, video = pool.map(probe, (_TORCH, _RENDER, _VIDEO))
    return [
        check_python(sys.version_info),
        check_packages(PACKAGES),
        check_torch(torch),
        check_threads(torch, os.environ, os.cpu_count() or 1),
        check_render(render, os.environ),
        check_video(video),
        check_config(),
        check_weights(WEIGHTS),
    ]


def check_python(found: Sequence[Any]) -> Finding:
    """Python 3.11 or later."""
    text = ".".join(str(part) for part in found[:3])
    if tuple(found[:2]) < (3, 11):
        return Finding("python", Verdict.PROBLEM, text, "install Python 3.11 or later, then `make clean install`")
    return Finding("python", Verdict.OK, text)


def check_packages(names: Sequence[str]) -> Finding:
    """Every package that the planner needs is installed."""
    found, missing = [], []
    for name in names:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            missing.append(name)
    if missing:
        return Finding("packages", Verdict.PROBLEM, f"missing: {', '.join(missing)}", "run `make install`")
    return Finding("packages", Verdict.OK, ", ".join(found))


def check_torch(probe: Mapping[str, Any]) -> Finding:
    """torch can be imported; names the device that models go to."""
    if "error" in probe:
        return Finding("device", Verdict.PROBLEM, str(probe["error"]), "reinstall torch: `make clean install`")
    return Finding("device", Verdict.OK, f"{probe['device']} (torch {probe['version']})")


def check_threads(probe: Mapping[str, Any], environ: Mapping[str, str], cores: int) -> Finding:
    """Waiting OpenMP threads sleep instead of spinning: spinning ones slow a busy machine by a large factor."""
    text = f"{cores} cores, torch would take {probe.get('threads', '?')} threads, planning takes 1"
    policy = environ.get("OMP_WAIT_POLICY", "").upper()
    if policy != "PASSIVE":
        text = f"{text}; OMP_WAIT_POLICY={policy or 'unset'}"
        return Finding("threads", Verdict.WARNING, text, "export OMP_WAIT_POLICY=PASSIVE")
    return Finding("threads", Verdict.OK, text)


def check_render(probe: Mapping[str, Any], environ: Mapping[str, str]) -> Finding:
    """A tiny scene renders without a screen, and the picture shows what stands in it."""
    backend = environ.get("MUJOCO_GL", "unset")
    if "error" in probe:
        cure = "export MUJOCO_GL=egl; on Debian: apt-get install libegl1 libegl-mesa0 libgl1-mesa-dri"
        return Finding("rendering", Verdict.PROBLEM, f"MUJOCO_GL={backend}: {probe['error']}", cure)
    text = f"MUJOCO_GL={backend}, {probe['renderer']}, {probe['ms']:.1f} ms a frame of 64 x 64"
    if probe["red"] < 50:
        return Finding("rendering", Verdict.PROBLEM, f"{text}, but the picture is black", "try MUJOCO_GL=osmesa")
    if probe["ms"] > 20:
        return Finding("rendering", Verdict.WARNING, text, "look for a busy process, or a missing GPU driver")
    return Finding("rendering", Verdict.OK, text)


def check_video(probe: Mapping[str, Any]) -> Finding:
    """ffmpeg is there, for the demo's videos."""
    if "error" in probe:
        cure = "pip install --force-reinstall imageio-ffmpeg, or set IMAGEIO_FFMPEG_EXE to an ffmpeg"
        return Finding("video", Verdict.WARNING, str(probe["error"]), cure)
    return Finding("video", Verdict.OK, f"ffmpeg {probe['ffmpeg']}")


def check_config() -> Finding:
    """The shipped configuration files are found."""
    tasks = options("task")
    if not tasks:
        return Finding("config", Verdict.PROBLEM, "no conf/ folder", "reinstall: `make clean install`")
    return Finding("config", Verdict.OK, f"tasks {', '.join(tasks)}; planners {', '.join(options('planner'))}")


def check_weights(folder: Path) -> Finding:
    """The shipped weights are found."""
    names = sorted(path.stem for path in folder.glob("*.safetensors"))
    if not names:
        cure = "only the toy model can be served; `mstar-plan train env=reach` makes weights"
        return Finding("weights", Verdict.WARNING, f"none in {folder.name}/", cure)
    return Finding("weights", Verdict.OK, ", ".join(names))
