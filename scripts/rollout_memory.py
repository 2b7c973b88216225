"""Peak memory of whole plans against the computed budget, each in a process of its own; for bench_rollout.py.

What counts is the growth of the resident set's high-water mark from just before the plan (Linux alone tells it).
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

from mstar_plan.models.vjepa2.ac_predictor import ACPredictor
from mstar_plan.models.vjepa2.config import ACPredictorConfig, EncoderConfig
from mstar_plan.models.vjepa2.contract import ModelContract
from mstar_plan.models.vjepa2.encoder import VJEPA2Encoder
from mstar_plan.models.vjepa2.world_model import VJEPA2AC, VJEPA2ACConfig
from mstar_plan.rollout.cem import CEMConfig
from mstar_plan.rollout.limits import MIB, PlanLimits, candidates_at_once
from mstar_plan.rollout.objective import ObjectiveConfig
from mstar_plan.rollout.plan_walk import plan_graph
from mstar_plan.rollout.solver import PlanSolver
from mstar_plan.runtime.runtime import Runtime
from mstar_plan.types import ActionSpec, Goal, Observation, PlanRequest

CASES = [(64, 4, 4096), (256, 4, 1024), (128, 8, 512)]  # candidates, horizon, budget in MiB


def measure() -> list[dict[str, float]]:
    """Runs every case; prints and returns what was found."""
    if not Path("/proc/self/clear_refs").exists():
        print("peak memory: this system does not tell it")
        return []
    rows = []
    for case in CASES:
        done = subprocess.run(
            [sys.executable, __file__, *map(str, case)], capture_output=True, text=True, check=True, timeout=300
        )
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        print("memory", rows[-1], flush=True)
    return rows


def plan(samples: int, horizon: int, budget_mb: int) -> dict[str, float]:
    """One plan of a small model with random weights."""
    torch.set_num_threads(2)
    size = {"img_size": (128, 128), "embed_dim": 256, "num_heads": 4}
    encoder = EncoderConfig(**size, num_frames=2, depth=2)
    predictor = ACPredictorConfig(**size, num_frames=32, predictor_embed_dim=256, depth=6)
    config = VJEPA2ACConfig(encoder, predictor, ModelContract(state="none"))
    ones = np.ones(7, np.float32)
    model = VJEPA2AC("m", config, ActionSpec(-ones, ones, 0.25), VJEPA2Encoder(encoder), ACPredictor(predictor))
    model.eval().requires_grad_(False)
    planner = CEMConfig(samples=samples, horizon=horizon, iterations=2)
    limits = PlanLimits(max_memory_mb=budget_mb)
    picture = np.zeros((128, 128, 3), np.uint8)
    request = PlanRequest(Observation(picture[None]), Goal(frame=picture + np.uint8(200)))
    objective = ObjectiveConfig(distance="l1", final=1.0, mean=0.0)
    with Runtime(plan_graph(model, planner, objective)) as runtime:
        solver = PlanSolver(model.spec, runtime, planner, limits=limits, footprint=model.rollout_bytes)
        solver.solve(request.but(samples=12, horizon=1, iterations=1))
        ctypes.CDLL("libc.so.6").malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
        before = resident("VmRSS")
        solver.solve(request)
        grown = resident("VmHWM") - before
    tile = candidates_at_once(samples, horizon, model.rollout_bytes, limits, model.spec)
    computed = model.rollout_bytes(tile, horizon) / MIB
    return {
        "K": samples, "H": horizon, "budget_mb": budget_mb, "at_once": tile, "computed_mb": round(computed, 1),
        "peak_mb": round(grown, 1), "peak_over_computed": round(grown / computed, 3),
    }  # fmt: skip


def resident(name: str) -> float:
    """A field of this process's status in MiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) / 1024
    raise LookupError(name)


if __name__ == "__main__":
    print(json.dumps(plan(*map(int, sys.argv[1:]))))
