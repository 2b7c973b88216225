"""Jobs in spawned processes, with news on the way; the first failure ends them all."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.context import SpawnContext
from typing import TypeVar

from mstar_plan.errors import UnavailableError

JobT = TypeVar("JobT")
ResultT = TypeVar("ResultT")

POLL_S = 0.25

# Spawned, not forked: a fresh process has neither the threads and locks nor the GL context of its parent.
CONTEXT: SpawnContext = multiprocessing.get_context("spawn")


def run_jobs(
    function: Callable[[JobT], ResultT],
    jobs: Sequence[JobT],
    *,
    workers: int,
    done: Callable[[JobT], None] | None = None,
    tick: Callable[[], None] | None = None,
) -> list[ResultT]:
    """Returns `function(job)` of each job, in their order.

    Args:
        function: Of a module's top level, so that a process can import it.
        jobs: What to run.
        workers: Processes at most.
        done: Called in this process with each job that is finished.
        tick: Called in this process a few times a second.

    Raises:
        UnavailableError: A process was killed from outside, most often for its memory.
        Exception: What a job raised.
    """
    if not jobs:
        return []
    others = set(multiprocessing.active_children())
    with ProcessPoolExecutor(min(workers, len(jobs)), mp_context=CONTEXT) as pool:
        futures = {pool.submit(function, job): job for job in jobs}
        try:
            _watch(futures, done or (lambda job: None), tick or (lambda: None))
            return [future.result() for future in futures]
        except BrokenProcessPool as error:
            raise UnavailableError("a process was killed, perhaps for want of memory; try fewer at once") from error
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in set(multiprocessing.active_children()) - others:
                process.terminate()
            raise


def _watch(futures: dict[Future[ResultT], JobT], done: Callable[[JobT], None], tick: Callable[[], None]) -> None:
    waiting = set(futures)
    while waiting:
        finished, waiting = wait(waiting, timeout=POLL_S, return_when=FIRST_COMPLETED)
        for future in finished:
            future.result()
            done(futures[future])
        tick()
