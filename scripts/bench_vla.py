"""Times a policy: the walk against a hand-written flow loop, and eight robots at once against the same eight in a row.

    python scripts/bench_vla.py [--kind pi0] [--repeats 40] [--json runs/bench_vla.json]

The policy is small and random (openpi's "dummy" towers), so that what the machinery costs shows. Both sides of a ratio
run in turn in one process; medians of the paired ratios are printed, and written as JSON.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from mstar_plan.evaluation.machine import describe_machine, package_versions
from mstar_plan.models.vla.act_walk import Finish, act_graph, sample_chunk
from mstar_plan.models.vla.gemma import GemmaConfig
from mstar_plan.models.vla.pi import PiPolicy
from mstar_plan.models.vla.pi_checkpoint import build_pi
from mstar_plan.models.vla.pi_config import PiConfig
from mstar_plan.models.vla.rtc import ChunkPrior
from mstar_plan.models.vla.siglip import SiglipConfig
from mstar_plan.runtime.runtime import Runtime

ROBOTS, CAMERAS, TOKENS = 8, 2, 16
DUMMY = GemmaConfig(64, 4, 128, 8, 1, 16)

Values = Mapping[str, Any]


def small_policy(kind: str) -> PiPolicy:
    """A random policy of openpi's dummy sizes, 4 patches a picture, 10 actions of 8 numbers."""
    torch.manual_seed(0)
    config = PiConfig(
        kind="pi05" if kind == "pi05" else "pi0",
        vision=SiglipConfig(32, 1, 2, 128, 28, 14),
        language=DUMMY,
        expert=DUMMY,
        vocabulary=300,
        chunk=10,
        action_width=8,
        state_width=8,
        steps=10,
    )
    return build_pi(config).eval().requires_grad_(False)


def request(policy: PiPolicy, seed: int) -> dict[str, Any]:
    """What the walk reads for one robot."""
    make = torch.Generator().manual_seed(seed)
    side, config = policy.config.vision.image_size, policy.config
    observed = {
        "images": torch.rand(1, CAMERAS, 3, side, side, generator=make) * 2 - 1,
        "image_mask": torch.ones(1, CAMERAS, dtype=torch.bool),
        "tokens": torch.randint(0, config.vocabulary, (1, TOKENS), generator=make),
        "token_mask": torch.ones(1, TOKENS, dtype=torch.bool),
        "state": torch.randn(1, config.state_width, generator=make),
    }
    values: dict[str, Any] = {name: observed[name] for name in policy.observes}
    values["noise"] = torch.randn(1, config.chunk, config.action_width, generator=make)
    return values | {"prior": ChunkPrior(1), "steps": config.steps}


def timed(call: Callable[[], object]) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def pairs(first: Callable[[], object], second: Callable[[], object], repeats: int) -> list[tuple[float, float]]:
    """Seconds of both, run in turn, in either order."""
    for _ in range(3):
        first(), second()
    made = []
    gc.collect()
    gc.disable()
    for i in range(repeats):
        if i % 2:
            made.append((timed(first), timed(second)))
        else:
            last = timed(second)
            made.append((timed(first), last))
    gc.enable()
    return made


def overhead(policy: PiPolicy, runtime: Runtime, finish: Finish, repeats: int) -> list[tuple[float, float]]:
    """The walk, alone on a runtime, against its loop written by hand."""
    values = request(policy, 0)

    @torch.inference_mode()
    def by_hand() -> torch.Tensor:
        chunk = sample_chunk(policy, policy.see(values), values["noise"], values["steps"])
        return finish.unnormalise(chunk).clamp(finish.low, finish.high)

    def walk() -> torch.Tensor:
        actions: torch.Tensor = runtime.submit("act", values, here=True).result().outputs["actions"]
        return actions

    torch.testing.assert_close(walk(), by_hand())
    return pairs(walk, by_hand, repeats)


def together(policy: PiPolicy, runtime: Runtime, rounds: int, repeats: int) -> list[tuple[float, float]]:
    """Eight clients, each sending its next request when it has its answer, against the same requests in a row."""
    requests = [request(policy, seed) for seed in range(ROBOTS)]

    def client(values: Values) -> None:
        for _ in range(rounds):
            runtime.submit("act", values).result()

    def at_once() -> None:
        threads = [threading.Thread(target=client, args=(values,)) for values in requests]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def in_a_row() -> None:
        for _ in range(rounds):
            for values in requests:
                runtime.submit("act", values, here=True).result()

    return pairs(in_a_row, at_once, repeats)


def summary(timings: list[tuple[float, float]], each: int) -> dict[str, Any]:
    """Medians of both sides in ms a request, and of their ratios first / second."""
    first, second = zip(*timings, strict=True)
    ratios = sorted(a / b for a, b in timings)
    return {
        "first_ms": 1e3 * statistics.median(first) / each,
        "second_ms": 1e3 * statistics.median(second) / each,
        "ratio": statistics.median(ratios),
        "ratio_quartiles": [ratios[len(ratios) // 4], ratios[3 * len(ratios) // 4]],
        "pairs": len(timings),
    }


def main(arguments: list[str] | None = None) -> None:
    """Runs both comparisons."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=("pi0", "pi05"), default="pi0")
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=4, help="requests of each client in one measurement")
    parser.add_argument("--json", type=Path, help="file to write the numbers to")
    words = parser.parse_args(arguments)
    torch.set_num_threads(1)
    policy = small_policy(words.kind)
    finish = Finish(lambda x: x, torch.full((8,), -1e6), torch.full((8,), 1e6))
    with Runtime(act_graph(words.kind, policy, finish)) as runtime:
        walk = summary(overhead(policy, runtime, finish, 5 * words.repeats), 1)
        rate = summary(together(policy, runtime, words.rounds, words.repeats), ROBOTS * words.rounds)
    print(f"walk {walk['first_ms']:.3f} ms, by hand {walk['second_ms']:.3f} ms: ratio {walk['ratio']:.3f}")
    print(
        f"{ROBOTS} in a row {rate['first_ms']:.3f} ms a request, at once {rate['second_ms']:.3f} ms: "
        f"{rate['ratio']:.2f} times the rate"
    )
    if words.json:
        words.json.parent.mkdir(parents=True, exist_ok=True)
        numbers = {"walk_against_loop": walk, "in_a_row_against_at_once": rate, "kind": words.kind, "robots": ROBOTS}
        facts = {"machine": describe_machine(), "packages": package_versions()}
        words.json.write_text(json.dumps(numbers | facts, indent=2) + "\n")


if __name__ == "__main__":
    main()
