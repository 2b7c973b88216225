"""Times V-JEPA 2-AC rollouts against the published way, and against this machine's own matrix product.

python scripts/bench_rollout.py --quick --json runs/bench_rollout.json

Every row is measured beside its baseline: both sides take turns, the best of equally many runs counts. The share of
peak is arithmetic done over seconds, over what one 3072^3 product of the same dtype reaches in the same run.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import rollout_memory
import rollout_ranking
import rollout_search
import torch
from published_rollout import PublishedPredictor, rollout
from torch import Tensor
from torch.nn import functional

from mstar_plan.evaluation.machine import describe_machine
from mstar_plan.models.vjepa2.ac_predictor import ACPredictor
from mstar_plan.models.vjepa2.blocks import INIT_STD
from mstar_plan.models.vjepa2.config import ACPredictorConfig
from mstar_plan.models.vjepa2.pose import compute_new_pose
from mstar_plan.models.vjepa2.rollout import Rollout

SMALL = ACPredictorConfig(
    img_size=(128, 128), num_frames=128, embed_dim=256, predictor_embed_dim=256, depth=6, num_heads=4
)
PUBLISHED_WIDTH = ACPredictorConfig(num_frames=16, depth=2)  # two of the 24 blocks: the share of peak is the same
QUICK = [(1, 1, 30, 1), (1, 100, 2, 1), (2, 32, 2, 1), (4, 32, 4, 1)]
MORE = [(4, 32, 4, 3), (1, 64, 1, 1), (1, 64, 4, 1), (1, 64, 8, 1), (2, 64, 8, 3), (4, 256, 4, 1), (8, 32, 8, 1)]
PEAK_SIDE = 3072
PATIENCE_S = 12.0  # for the turns of one point
DTYPES = (torch.float32, torch.bfloat16)


@dataclass
class Row:
    """One measurement; the speed-ups compare with the published way at the same C, K, H and iterations."""

    model: str
    C: int
    K: int
    H: int
    iterations: int
    dtype: str
    variant: str
    seconds: float
    speedup_vs_naive_fp32: float | None
    speedup_vs_naive_same_dtype: float | None
    peak_fraction: float
    max_abs_diff: float | None


@dataclass
class Problem:
    """What is rolled out: context [C, N, D], past actions and states [C-1, 7], pose [7], candidates [K, H, 7]."""

    context: Tensor
    past: tuple[Tensor, Tensor]
    pose: Tensor
    actions: Tensor

    def to(self, dtype: torch.dtype) -> Problem:
        """The same in another dtype; poses stay in float32."""
        return Problem(self.context.to(dtype), self.past, self.pose, self.actions)


def make_problem(config: ACPredictorConfig, c: int, k: int, h: int) -> Problem:
    """Random latents (layer-normed) and small random moves, the same for every call."""
    torch.manual_seed(0)
    context = functional.layer_norm(torch.randn(c, config.tokens_per_frame, config.embed_dim), (config.embed_dim,))
    past = torch.randn(c - 1, 7) * 0.05, torch.randn(c - 1, 7) * 0.1
    actions = torch.randn(k, h, 7) * torch.tensor([0.05, 0.05, 0.05, 0, 0, 0, 0.3])
    return Problem(context, past, torch.tensor([0.4, 0.1, 0.3, 3.1, 0.0, 0.2, 0.5]), actions)


def cached(network: Rollout, problem: Problem, iterations: int) -> Tensor:
    """Our way: [K, H, N, D] after `iterations` rollouts; the past is computed once for all of them."""
    k, horizon = problem.actions.shape[:2]
    past = [None, None] if len(problem.past[0]) == 0 else [each[None] for each in problem.past]
    start = network.begin(problem.context[None], past[0], past[1], k, horizon)
    for _ in range(iterations):
        cache, pose, frames = start, problem.pose.expand(1, k, -1), []
        latent = problem.context[None, -1:].expand(-1, k, -1, -1)
        for h in range(horizon):
            action = problem.actions[None, :, h]
            latent, cache = network.step(latent, action, pose, cache)
            pose = compute_new_pose(pose, action)
            frames.append(latent[0])
    return torch.stack(frames, 1)


def naive(network: PublishedPredictor, problem: Problem, iterations: int) -> Tensor:
    """The published way: the same, nothing kept."""
    for _ in range(iterations):
        frames = rollout(network, problem.context, problem.past, problem.pose, problem.actions)
    return frames


def flops(config: ACPredictorConfig, rows: int, seen: list[int], new: int = 1) -> float:
    """Of matrix products: `rows` sequences, steps that each compute `new` frames (or as many as they see, if 0)."""
    s, n, w = config.sequence_per_frame, config.tokens_per_frame, config.width
    linear = config.depth * 2 * s * w * w * (4 + 2 * config.mlp_ratio) + 4 * n * w * config.embed_dim
    total = 0.0
    for frames in seen:
        count = new or frames
        total += count * linear + config.depth * 4 * count * s * frames * s * w
    return rows * total


def best_of(runs: int, *sides: Callable[[], Tensor]) -> tuple[list[float], list[Tensor]]:
    """Best seconds and a result of each side.

    They take turns after one to warm up, equally often: `runs` times, or fewer where a turn takes long.
    """
    began = time.perf_counter()
    results = [side() for side in sides]
    turn_s = time.perf_counter() - began
    best = [float("inf")] * len(sides)
    for _ in range(max(1, min(runs, int(PATIENCE_S / turn_s)))):
        for i, side in enumerate(sides):
            start = time.perf_counter()
            results[i] = side()
            best[i] = min(best[i], time.perf_counter() - start)
    return best, results


def peak_flops(dtype: torch.dtype) -> float:
    """Matrix product of this machine, best of five."""
    a, b = (torch.randn(PEAK_SIDE, PEAK_SIDE).to(dtype) for _ in range(2))
    (seconds,), _ = best_of(5, lambda: a @ b)
    return 2 * PEAK_SIDE**3 / seconds


def networks(config: ACPredictorConfig) -> dict[torch.dtype, ACPredictor]:
    """The same random weights in each dtype.

    Their deviation is 1 / sqrt(width). The published start of training, 0.02 at any width, makes the predictions of a
    narrow network so small that the layer norm behind them magnifies rounding: 30 steps end 1.9e-5 apart then, each
    side 1.4e-5 from float64.
    """
    torch.manual_seed(1)
    made = {torch.float32: ACPredictor(config).eval()}
    with torch.no_grad():
        for parameter in made[torch.float32].parameters():
            if parameter.ndim == 2:
                parameter.mul_(config.width**-0.5 / INIT_STD)
    other = ACPredictor(config).eval()
    other.load_state_dict(made[torch.float32].state_dict())
    return {**made, torch.bfloat16: other.to(torch.bfloat16)}


def measure_grid(grid: list[tuple[int, int, int, int]], peaks: dict[torch.dtype, float], runs: int) -> list[Row]:
    """Both ways, both dtypes, at every point."""
    rows: list[Row] = []
    nets = networks(SMALL)
    ours = {dtype: Rollout(net, normalize=True) for dtype, net in nets.items()}
    for each in ours.values():
        each.tune()
    theirs = {dtype: PublishedPredictor(net) for dtype, net in nets.items()}
    for c, k, h, iterations in grid:
        naive_seconds, exact = 0.0, None
        for dtype in DTYPES:
            problem = make_problem(SMALL, c, k, h).to(dtype)
            (slow, fast), (reference, found) = best_of(
                runs,
                lambda p=problem, d=dtype, n=iterations: naive(theirs[d], p, n),  # type: ignore[misc]
                lambda p=problem, d=dtype, n=iterations: cached(ours[d], p, n),  # type: ignore[misc]
            )
            if exact is None:
                naive_seconds, exact = slow, reference
            seen = [c + i for i in range(h)]
            work = {
                "naive": iterations * flops(SMALL, k, seen, new=0),
                "cached": iterations * flops(SMALL, k, seen) + flops(SMALL, 1, list(range(1, c))),
            }
            for variant, seconds, result in (("naive", slow, reference), ("cached", fast, found)):
                rows.append(
                    Row(
                        "256x6 64 patches", c, k, h, iterations, str(dtype).removeprefix("torch."), variant, seconds,
                        naive_seconds / seconds, slow / seconds, work[variant] / seconds / peaks[dtype],
                        (result.float() - exact.float()).abs().max().item(),
                    )
                )  # fmt: skip
                show(rows[-1])
    return rows


def measure_steps(peaks: dict[torch.dtype, float], runs: int) -> list[Row]:
    """One cached step of many candidates at the published width, and at ours: its share of the matrix peak.

    The product takes turns with the step, so that a slow moment of the machine does not count for one of them alone.
    """
    rows = []
    for name, config, k in (("1024 wide, 256 patches", PUBLISHED_WIDTH, 8), ("256 wide, 64 patches", SMALL, 64)):
        for dtype, net in networks(config).items():
            network = Rollout(net, normalize=True)
            network.tune()
            problem = make_problem(config, 1, k, 1).to(dtype)
            a, b = (torch.randn(PEAK_SIDE, PEAK_SIDE).to(dtype) for _ in range(2))
            (seconds, product_s), _ = best_of(
                3 * runs,
                lambda n=network, p=problem: cached(n, p, 1),  # type: ignore[misc]
                lambda x=a, y=b: x @ y,  # type: ignore[misc]
            )
            peaks[dtype] = max(peaks[dtype], 2 * PEAK_SIDE**3 / product_s)
            share = flops(config, k, [1]) / seconds / (2 * PEAK_SIDE**3 / product_s)
            text = str(dtype).removeprefix("torch.")
            variant = f"step, chunks of {network.rows}"
            rows.append(Row(name, 1, k, 1, 1, text, variant, seconds, None, None, share, None))
            show(rows[-1])
    return rows


def show(row: Row) -> None:
    """One line of the table."""
    times = [f"{x:6.2f}" if x else "     -" for x in (row.speedup_vs_naive_fp32, row.speedup_vs_naive_same_dtype)]
    diff = "-" if row.max_abs_diff is None else f"{row.max_abs_diff:.1e}"
    print(
        f"{row.model:24} C{row.C} K{row.K:<4} H{row.H:<3} it{row.iterations} {row.dtype:9} {row.variant:20} "
        f"{row.seconds:8.4f} s  x fp32 {times[0]}  x same {times[1]}  peak {row.peak_fraction:5.2f}  diff {diff}",
        flush=True,
    )


def main() -> None:
    """Parses, measures, prints and writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the named points alone; ends within five minutes")
    parser.add_argument("--json", type=Path, help="file for the rows")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=3, help="runs of each side")
    words = parser.parse_args()
    torch.set_num_threads(words.threads)
    with torch.inference_mode():
        peaks = {dtype: peak_flops(dtype) for dtype in DTYPES}
        print({str(d): f"{p / 1e9:.0f} GFLOP/s" for d, p in peaks.items()}, f"{words.threads} threads", flush=True)
        rows = measure_steps(peaks, words.runs)
        rows += measure_grid(QUICK if words.quick else QUICK + MORE, peaks, words.runs)
    machine = {**describe_machine(), "threads": words.threads}
    machine["peak_gflops"] = {str(d).removeprefix("torch."): p / 1e9 for d, p in peaks.items()}
    report = {
        "machine": machine,
        "rows": [asdict(row) for row in rows],
        "memory": rollout_memory.measure(),
        "search": rollout_search.measure(quick=words.quick),
        "warm_starts": rollout_search.warm_starts("vjepa2_reach", 20),
        "ranking": rollout_ranking.measure(),
    }
    if words.json:
        words.json.parent.mkdir(parents=True, exist_ok=True)
        words.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
