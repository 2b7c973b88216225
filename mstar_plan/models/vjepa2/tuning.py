"""How many candidates run through the blocks at a time: measured on this machine, once a process.

Few rows leave the matrix units idle; many push activations out of the processor's caches (256 candidates in one piece
were slower per candidate than 64, measured). The best number depends on the machine, the width and the dtype.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

import torch

MOST_TOKENS = {"cpu": 4096}  # of a chunk; activations of more never fit a processor's caches
MOST_TOKENS_ELSEWHERE = 65536
REPEATS = 3


def candidate_rows(tokens: int, device: str, most: int) -> list[int]:
    """Powers of two to try, for frames of so many tokens; 1 at least."""
    limit = MOST_TOKENS.get(device, MOST_TOKENS_ELSEWHERE)
    rows = [2**i for i in range(12) if 2**i <= most and 2**i * tokens <= limit]
    return rows or [1]


def fastest(rows: list[int], run: Callable[[int], None], device: torch.device) -> int:
    """The number of rows whose `run` costs least a row; each is warmed up once and the best of three is taken."""
    if len(rows) == 1:
        return rows[0]
    return min(rows, key=lambda number: _seconds(functools.partial(run, number), device) / number)


def _seconds(run: Callable[[], None], device: torch.device) -> float:
    run()
    best = float("inf")
    for _ in range(REPEATS):
        _wait(device)
        began = time.perf_counter()
        run()
        _wait(device)
        best = min(best, time.perf_counter() - began)
    return best


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
