"""`import mstar_plan` is light, and so is the client: neither brings torch."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["mstar_plan", "mstar_plan.types", "mstar_plan.serving.client"])
def test_light_import(module: str) -> None:
    code = f"import sys, {module}; heavy = [m for m in ('torch', 'mujoco', 'ray') if m in sys.modules]; print(heavy)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
