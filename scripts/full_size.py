"""Shows that a V-JEPA 2-AC bundle of the published size loads and plans on this machine: seconds and peak memory.

Makes a bundle with random weights in the published layout (ViT-g/16 encoder, 1408 wide, 40 blocks; predictor 1024 wide,
24 blocks) in a temporary folder, loads it in a process of its own, and plans K = 8, H = 2, one iteration through
`PlanSolver`. Exit code 1 if the peak of the resident set is above the limit.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from mstar_plan.models.vjepa2.ac_predictor import ACPredictor
from mstar_plan.models.vjepa2.checkpoint import open_checkpoint
from mstar_plan.models.vjepa2.config import AC_PREDICTORS, ENCODERS
from mstar_plan.models.vjepa2.encoder import VJEPA2Encoder
from mstar_plan.models.vjepa2.infer import LoadOptions
from mstar_plan.rollout.cem import CEMConfig
from mstar_plan.rollout.objective import ObjectiveConfig
from mstar_plan.rollout.plan_walk import plan_graph
from mstar_plan.rollout.solver import PlanSolver
from mstar_plan.runtime.runtime import Runtime
from mstar_plan.types import Goal, Observation, PlanRequest

LIMIT_GB = 14.0
SIZES = {"giant": ("vit_giant", "vit_ac_giant"), "mini": ("mini", "mini")}


def random_state(network: nn.Module, prefix: str, dtype: torch.dtype) -> dict[str, Tensor]:
    """Random tensors under the names that the published files have."""
    state = {}
    for name, tensor in network.state_dict().items():
        value = torch.randn(tensor.shape, dtype=torch.float32).mul_(0.02)
        if "norm" in name and name.endswith("weight"):
            value += 1
        state[prefix + name] = value.to(dtype)
    return state


def make(path: Path, size: str, dtype: torch.dtype) -> None:
    """Writes the bundle."""
    torch.manual_seed(0)
    encoder, predictor = SIZES[size]
    with torch.device("meta"):
        networks = VJEPA2Encoder(ENCODERS[encoder]), ACPredictor(AC_PREDICTORS[predictor])
    bundle = {
        "encoder": random_state(networks[0], "module.backbone.", dtype),
        "predictor": random_state(networks[1], "module.", dtype),
        "epoch": 1,
    }
    torch.save(bundle, path)


def plan(path: Path, dtype: torch.dtype) -> dict[str, object]:
    """Loads the bundle, plans once, and tells seconds and memory."""
    began = time.perf_counter()
    checkpoint = open_checkpoint(path, LoadOptions(dtype=dtype))
    model = checkpoint.build_world_model()
    loaded = time.perf_counter()
    peak_loaded = peak_gb()
    planner = CEMConfig(samples=8, iterations=1, horizon=2, elites=2, carry=1)
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 256, (2, *model.spec.image_size, 3), dtype=np.uint8)
    pose = np.array([0.4, 0.0, 0.3, 0.0, 0.0, 0.0, 0.5], np.float32)
    request = PlanRequest(Observation(frames[:1], state=pose), Goal(frame=frames[1]))
    with Runtime(plan_graph(model, planner, ObjectiveConfig(distance="l1", final=1.0, mean=0.0))) as runtime:
        solver = PlanSolver(model.spec, runtime, planner, footprint=model.rollout_bytes)
        first = timed(solver, request)
        second = timed(solver, request)
    return {
        "report": checkpoint.report.lines(),
        "file_gb": path.stat().st_size / 1e9,
        "load_s": loaded - began,
        "first_plan_s": first,
        "plan_s": second,
        "peak_loaded_gb": peak_loaded,
        "peak_gb": peak_gb(),
    }


def timed(solver: PlanSolver, request: PlanRequest) -> float:
    """Seconds of one plan; its actions are finite or the solver refuses them."""
    began = time.perf_counter()
    found = solver.solve(request)
    assert np.isfinite(found.actions).all()
    return time.perf_counter() - began


def peak_gb() -> float:
    """Most resident memory of this process so far, mapped pages of the file included."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def main() -> int:
    """Makes, loads, plans; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=sorted(SIZES), default="giant")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="bfloat16", help="of the loaded weights")
    parser.add_argument("--disk", choices=("float32", "bfloat16"), default="bfloat16", help="of the file")
    parser.add_argument("--limit-gb", type=float, default=LIMIT_GB)
    parser.add_argument("--step", choices=("make", "plan"), help=argparse.SUPPRESS)
    parser.add_argument("--path", type=Path, help=argparse.SUPPRESS)
    words = parser.parse_args()
    if words.step == "make":
        make(words.path, words.size, getattr(torch, words.disk))
        return 0
    if words.step == "plan":
        print(json.dumps(plan(words.path, getattr(torch, words.dtype))))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        own = [sys.executable, __file__, "--size", words.size, "--dtype", words.dtype, "--disk", words.disk]
        own += ["--path", str(Path(folder) / "vjepa2-ac.pt")]
        subprocess.run([*own, "--step", "make"], check=True)
        done = subprocess.run([*own, "--step", "plan"], check=True, stdout=subprocess.PIPE, text=True)
    found = json.loads(done.stdout)
    print("\n".join(found.pop("report")))
    print(f"K = 8, H = 2, 1 iteration, loaded as {words.dtype}, {torch.get_num_threads()} threads")
    for name, value in found.items():
        print(f"{name:<16}{value:8.2f}")
    if found["peak_gb"] > words.limit_gb:
        print(f"peak of {found['peak_gb']:.2f} GB is above the limit of {words.limit_gb} GB", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
