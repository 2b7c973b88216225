"""Times a plan: the walk machinery against a hand-written loop, eight robots at once against eight in a row.

    python scripts/bench_plan.py [--model reach] [--repeats 200] [--json runs/bench_plan.json]

Both sides of a ratio run in turn in one process, block by block, so that a drift of the speed cancels; medians of the
paired ratios are printed, and written as JSON.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from mstar_plan.evaluation.machine import describe_machine, package_versions
from mstar_plan.models.registry import load_model
from mstar_plan.models.world_model import WorldModel
from mstar_plan.rollout.cem import CEM, CEMConfig
from mstar_plan.rollout.constraints import SearchSpace
from mstar_plan.rollout.objective import ObjectiveConfig, make_objective
from mstar_plan.rollout.plan_values import walk_values
from mstar_plan.rollout.plan_walk import plan_graph, walk_name
from mstar_plan.rollout.solver import PlanSolver
from mstar_plan.runtime.runtime import Runtime
from mstar_plan.types import Goal, Observation, Plan, PlanRequest

K, H, ITERATIONS, ROBOTS = 64, 10, 3, 8


PlanFunction = Callable[[PlanRequest], np.ndarray]


def hand_written(model: WorldModel, config: CEMConfig, objective_config: ObjectiveConfig) -> PlanFunction:
    """The loop that a researcher would write for one robot: the same model, planner and objective, and nothing else."""
    planner, objective, space = CEM(config), make_objective(objective_config), SearchSpace(model.spec.action)

    @torch.inference_mode()
    def plan(request: PlanRequest) -> np.ndarray:
        latent = model.encode(torch.tensor(request.observation.frames))
        goal = model.embed(model.encode(torch.tensor(request.goal.frame[None])))
        start, _, _ = model.begin(latent[:, None], None, None, config.samples, config.horizon)
        state = planner.init((1, config.horizon, space.spec.size), None, latent.device)
        seed, best_cost, best = torch.tensor([request.seed]), float("inf"), None
        for i in range(config.iterations):
            candidates = planner.propose(state, seed, torch.tensor([i]), config.samples)
            candidates = space.project(candidates, None)
            actions, z, trajectory = space.to_units(candidates), start, []
            for h in range(config.horizon):
                z, _, _ = model.predict(z, None, actions[:, :, h], None)
                trajectory.append(z)
            costs = objective(model.embed(torch.stack(trajectory, 2)), goal, candidates)
            state = planner.refit(state, candidates, costs)
            cost, index = costs.min(1)
            if cost.item() < best_cost:
                best_cost, best = cost.item(), actions[0, index[0]]
        return best.numpy()

    return plan


def requests(model: WorldModel, count: int) -> list[PlanRequest]:
    """Requests with noise images: the arithmetic is the same, whatever the picture."""
    rng, (height, width) = np.random.default_rng(0), model.spec.image_size
    frames = rng.integers(0, 256, (count, 2, height, width, 3), dtype=np.uint8)
    return [PlanRequest(Observation(f[:1]), Goal(frame=f[1]), seed=i) for i, f in enumerate(frames)]


def timed(call: Callable[[], object]) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def paired(one: Callable[[], object], other: Callable[[], object], repeats: int, block: int = 10) -> dict[str, float]:
    """Times two calls in turn, in blocks of `block`, so that each side runs with warm caches, as it would in use.

    A block's time is its median; the ratio is the median over the pairs of blocks. The first call of a block is not
    counted, and the garbage collector runs between blocks.
    """
    blocks = []
    for i in range(1 + max(3, repeats // block)):
        sides = (one, other) if i % 2 else (other, one)
        times = {side: block_time(side, block) for side in sides}
        blocks.append((times[one], times[other]))
    blocks = blocks[1:]  # the first pair is the warm-up
    return {
        "ratio": statistics.median(a / b for a, b in blocks),
        "ms": 1e3 * statistics.median(a for a, _ in blocks),
        "beside_ms": 1e3 * statistics.median(b for _, b in blocks),
    }


def block_time(call: Callable[[], object], block: int) -> float:
    """Median seconds of a call, over a block of them."""
    gc.collect()
    gc.disable()
    call()
    median = statistics.median(timed(call) for _ in range(block))
    gc.enable()
    return median


def largest_difference(alone: list[Plan], together: list[Plan]) -> float:
    """Largest relative difference of the costs of plans that were made alone and beside others."""
    return max(abs(a.cost - b.cost) / abs(a.cost) for a, b in zip(alone, together, strict=True))


def seconds_to_import() -> float:
    """Best of three fresh interpreters: `import mstar_plan`, less the interpreter's own start."""

    def run(code: str) -> float:
        return min(timed(lambda: subprocess.run([sys.executable, "-c", code], check=True)) for _ in range(3))

    return run("import mstar_plan") - run("pass")


def measure(model: WorldModel, repeats: int) -> dict[str, object]:
    """All figures of one model."""
    config, objective = CEMConfig(samples=K, horizon=H, iterations=ITERATIONS), ObjectiveConfig()
    by_hand = hand_written(model, config, objective)
    batch = requests(model, ROBOTS)
    with Runtime(plan_graph(model, config, objective)) as runtime:
        solver = PlanSolver(model.spec, runtime, config)

        def together(deterministic: bool = False) -> list[Plan]:
            return [f.result() for f in [solver.submit(r.but(deterministic=deterministic)) for r in batch]]

        def walk() -> torch.Tensor:
            values = walk_values(batch[0], model.spec, solver.defaults, config.fewest_samples)
            return runtime.submit(walk_name("goal_frames", False), values, here=True).result().outputs["plan"]

        expected = by_hand(batch[0])
        for found in (solver.solve(batch[0]).actions, walk()[0].numpy()):
            assert np.abs(found - expected).max() < 1e-5, "the hand-written loop finds another plan"
        machinery = paired(walk, lambda: by_hand(batch[0]), repeats)
        whole = paired(lambda: solver.solve(batch[0]), lambda: by_hand(batch[0]), repeats)
        concurrent = paired(together, lambda: [solver.solve(r) for r in batch], max(60, repeats // 4))
        deterministic = paired(
            lambda: solver.solve(batch[0].but(deterministic=True)), lambda: solver.solve(batch[0]), repeats // 2
        )
        alone = [solver.solve(r) for r in batch]
        exact = [solver.solve(r.but(deterministic=True)) for r in batch]
        exact_together = together(deterministic=True)
        return {
            "machinery": machinery,
            "whole_plan": whole,
            "eight_at_once": concurrent,
            "deterministic": deterministic,
            "cost_difference_beside_others": largest_difference(alone, together()),
            "deterministic_same_bytes": all(
                a.actions.tobytes() == b.actions.tobytes() for a, b in zip(exact, exact_together, strict=True)
            ),
        }


def main() -> None:
    """Measures, prints a table and writes JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="reach", help="registry name of the world model")
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--threads", type=int, default=1, help="torch threads; one is fastest for small models")
    parser.add_argument("--json", type=Path, default=Path("runs/bench_plan.json"))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = measure(load_model(options.model), options.repeats)
    rows["import_s"] = seconds_to_import()
    m, w, c, d = (rows[name] for name in ("machinery", "whole_plan", "eight_at_once", "deterministic"))
    print(f"model {options.model}, K={K}, H={H}, {ITERATIONS} iterations, {options.threads} thread(s)")
    for name, other, row in (
        ("walk and runtime", "hand-written loop", m),
        ("the same to a checked Plan", "hand-written loop", w),
        (f"{ROBOTS} robots at once", f"{ROBOTS} in a row", c),
        ("deterministic plan", "default", d),
    ):
        print(f"{name:30} {row['ms']:7.2f} ms | {other:18} {row['beside_ms']:7.2f} ms | ratio {row['ratio']:.3f}")
    print(f"cost beside 7 others: relative difference {rows['cost_difference_beside_others']:.1e} by default")
    print(f"deterministic: same bytes beside 7 others: {rows['deterministic_same_bytes']}")
    print(f"import mstar_plan: {rows['import_s']:.3f} s")
    options.json.parent.mkdir(parents=True, exist_ok=True)
    document = {"machine": describe_machine(), "versions": package_versions(), "model": options.model, **rows}
    options.json.write_text(json.dumps(document, indent=2))
    print(f"written to {options.json}")


if __name__ == "__main__":
    main()
