"""What a measurement was made on: processor, memory, system, GL renderer and package versions."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

PACKAGES = ("mstar-plan", "torch", "numpy", "scipy", "gymnasium", "mujoco", "grpcio", "protobuf", "pillow")


def describe_machine(*, device: str | None = None, gl: str | None = None) -> dict[str, Any]:
    """Returns a JSON-ready description of this machine; what cannot be found out is None.

    Args:
        device: Where the model ran, as its owner knows it; over gRPC that may be another machine.
        gl: GL renderer of the cameras, if it was asked for in another process; else this process is asked.
    """
    torch = sys.modules.get("torch")  # asked only if it is there: a client must not load it
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "cores_usable": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": _memory_gib(),
        "os": platform.platform(),
        "python": platform.python_version(),
        "device": device,
        "torch_threads": torch.get_num_threads() if torch is not None else None,
        "gl_renderer": gl if gl is not None else gl_renderer(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def package_versions() -> dict[str, str]:
    """Returns name -> version of the packages that results depend on, those installed."""
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def gl_renderer() -> str | None:
    """Returns the renderer of the GL context that is current in this thread, or None if there is none."""
    if "OpenGL" not in sys.modules:  # MuJoCo loads it for EGL and OSMesa; without it there is no such context
        return None
    try:
        gl = importlib.import_module("OpenGL.GL")
        name = gl.glGetString(gl.GL_RENDERER)
    except Exception:  # PyOpenGL has errors of its own for a missing context; a report must not fail for them
        return None
    return name.decode() if name else None


def _cpu_model() -> str | None:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.lower().startswith(("model name", "hardware")):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine() or None


def _memory_gib() -> float | None:
    try:
        return round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1)
    except (AttributeError, ValueError, OSError):  # not a POSIX system
        return None
