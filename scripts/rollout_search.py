"""Energy against wall time of planners on the trained small V-JEPA 2-AC; for bench_rollout.py.

The baseline is the published planner with its defaults (400 samples, 10 iterations, 10 elites, horizon 2), run through
the same fast rollouts. For every start and goal the question is how long another planner takes until its best energy is
the one that the baseline ends with. Energy is the mean absolute difference of the last predicted tokens to the goal's.
"""

from __future__ import annotations

import os
import statistics
import time
from dataclasses import replace
from typing import Any

os.environ.setdefault("MUJOCO_GL", "egl")

import gymnasium
import numpy as np
import torch
import torch._dynamo  # before a GL context: loading it later can crash the process

from mstar_plan.models.registry import load_model
from mstar_plan.models.world_model import WorldModel
from mstar_plan.rollout.cem import CEMConfig
from mstar_plan.rollout.icem import ICEMConfig
from mstar_plan.rollout.mppi import MPPIConfig
from mstar_plan.rollout.noise import NoiseConfig
from mstar_plan.rollout.objective import ObjectiveConfig
from mstar_plan.rollout.plan_walk import plan_graph
from mstar_plan.rollout.planner import PlannerConfig
from mstar_plan.rollout.solver import PlanSolver
from mstar_plan.rollout.vjepa2_cem import VJEPA2CEMConfig
from mstar_plan.rollout.warm_start import shift
from mstar_plan.runtime.runtime import Runtime
from mstar_plan.types import Goal, Observation, Plan, PlanRequest

ENERGY = ObjectiveConfig(distance="l1", final=1.0, mean=0.0)
SLACK = 1e-3  # an energy counts as reached within this share of it
HORIZON = 2
MODELS = {
    "vjepa2_reach": "envs:mstar/Reach-v0",
    "vjepa2_wall": "envs:mstar/Wall-v0",
    "vjepa2_push": "envs:mstar/Push-v0",
}
WHITE = NoiseConfig("white")
FAST = CEMConfig(
    samples=64, iterations=8, horizon=HORIZON, elites=8, carry=4, std=1.0, std_floor=0.0, momentum_std=0.2, noise=WHITE
)
VARIANTS: dict[str, PlannerConfig] = {
    "cem 64": FAST,
    "cem 64, ends when agreed": replace(FAST, tolerance=0.02),
    "cem 64, coloured noise": replace(FAST, noise=NoiseConfig()),
    "cem 64, narrow start": replace(FAST, std=0.6),
    "cem 64, no carry": replace(FAST, carry=0),
    "cem 32": replace(FAST, samples=32, elites=5, carry=3),
    "cem 128": replace(FAST, samples=128, elites=12),
    "icem 64": ICEMConfig(samples=64, iterations=8, horizon=HORIZON, elites=8, std=1.0, std_floor=0.0, noise=WHITE),
    "mppi 64": MPPIConfig(samples=64, iterations=8, horizon=HORIZON, std=1.0, std_floor=0.0, noise=WHITE),
}
WARM_ITERATIONS = (1, 2, 3, 4)


def starts(env_id: str, count: int) -> list[PlanRequest]:
    """Requests from the first frames of episodes, goals as the task gives them."""
    env = gymnasium.make(env_id)
    requests = []
    for seed in range(count):
        seen, _ = env.reset(seed=70000 + seed)
        requests.append(
            PlanRequest(Observation(np.array(seen["image"])[None]), Goal(frame=np.array(seen["goal_image"])), seed=seed)
        )
    env.close()
    return requests


def search(model: WorldModel, planner: PlannerConfig, requests: list[PlanRequest]) -> tuple[list[Plan], list[float]]:
    """Plans for all requests, and the seconds that each took; a first round warms up."""
    plans, seconds = [], []
    with Runtime(plan_graph(model, planner, ENERGY)) as runtime:
        solver = PlanSolver(model.spec, runtime, planner)
        solver.solve(requests[0])
        for request in requests:
            began = time.perf_counter()
            plans.append(solver.solve(request))
            seconds.append(time.perf_counter() - began)
    return plans, seconds


def warm_starts(name: str, count: int) -> dict[str, Any]:
    """Mean energy after few iterations at the second step of episodes: from the shifted last plan, and from nothing."""
    model = load_model(name)
    env = gymnasium.make(MODELS[name])
    found: dict[str, list[list[float]]] = {"warm": [], "cold": []}
    with Runtime(plan_graph(model, FAST, ENERGY)) as runtime:
        solver = PlanSolver(model.spec, runtime, FAST)
        for seed in range(count):
            seen, _ = env.reset(seed=71000 + seed)
            goal = Goal(frame=np.array(seen["goal_image"]))
            first = solver.solve(PlanRequest(Observation(np.array(seen["image"])[None]), goal, seed=seed))
            seen, *_ = env.step(first.actions[0])
            request = PlanRequest(Observation(np.array(seen["image"])[None]), goal, seed=1000 + seed)
            assert first.warm_start is not None
            for kind, warm in (("warm", shift(first.warm_start, 1)), ("cold", None)):
                asked = [request.but(iterations=i, warm_start=warm) for i in WARM_ITERATIONS]
                found[kind].append([solver.solve(each).cost for each in asked])
    env.close()
    means = {kind: np.mean(values, 0).round(5).tolist() for kind, values in found.items()}
    print("warm starts", {"model": name, "iterations": WARM_ITERATIONS, **means}, flush=True)
    return {"model": name, "iterations": WARM_ITERATIONS, **means}


def energy_of(model: WorldModel, request: PlanRequest, actions: np.ndarray) -> float:
    """The energy of one action sequence [H, A]."""
    latent, goal = (
        model.encode(torch.from_numpy(frame[None])) for frame in (request.observation.frames[0], request.goal.frame)
    )
    z, state, cache = model.begin(latent[:, None], None, None, 1, len(actions))
    for action in actions:
        z, state, cache = model.predict(z, state, torch.from_numpy(action)[None, None], cache)
    return float((z[0] - goal).abs().mean())


def measure_model(name: str, count: int) -> list[dict[str, Any]]:
    """Every variant against the published defaults, on one model."""
    model = load_model(name)
    requests = starts(MODELS[name], count)
    baseline, baseline_s = search(model, VJEPA2CEMConfig(), requests)
    with torch.inference_mode():
        targets = [energy_of(model, r, p.actions) for r, p in zip(requests, baseline, strict=True)]
    row = {"model": name, "planner": "vjepa2_cem 400 x 10", "seconds": statistics.median(baseline_s)}
    rows: list[dict[str, Any]] = [{**row, "energy": statistics.mean(targets), "reached": count, "speedup": 1.0}]
    for label, planner in VARIANTS.items():
        plans, seconds = search(model, planner, requests)
        once, once_s = search(model, replace(planner, iterations=1), requests)
        del once
        ratios = []
        for plan, target, full, first, slow in zip(plans, targets, seconds, once_s, baseline_s, strict=True):
            reached = [i for i, energy in enumerate(plan.cost_history) if energy <= target * (1 + SLACK)]
            if reached:
                each = max(0.0, full - first) / max(1, plan.iterations - 1)
                ratios.append(slow / (first + reached[0] * each))
            else:
                ratios.append(0.0)
        rows.append(
            {
                "model": name,
                "planner": label,
                "seconds": statistics.median(seconds),
                "energy": statistics.mean(plan.cost for plan in plans),
                "reached": sum(ratio > 0 for ratio in ratios),
                "speedup": statistics.median(ratios),
            }
        )
    for each in rows:
        print({key: round(value, 5) if isinstance(value, float) else value for key, value in each.items()}, flush=True)
    return rows


def measure(*, quick: bool) -> list[dict[str, Any]]:
    """The trained models; the first alone if it has to be quick."""
    names = list(MODELS)[:1] if quick else list(MODELS)
    return [row for name in names for row in measure_model(name, 20 if quick else 50)]
