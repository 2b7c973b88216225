"""Jobs in processes: results in order, failures at once."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from mstar_plan.errors import InvalidInputError, UnavailableError
from mstar_plan.training.processes import run_jobs
from mstar_plan.training.shards import read_episodes

# Spawned processes import the function by its module's name, and a test module has none: these come from the library.


def test_results_keep_their_order_and_are_announced():
    done, ticks = [], []
    results = run_jobs(abs, [-3, 2, -1], workers=2, done=done.append, tick=lambda: ticks.append(1))
    assert results == [3, 2, 1]
    assert sorted(done) == [-3, -1, 2]
    assert ticks


def test_nothing_to_do():
    assert run_jobs(abs, [], workers=2) == []


def test_the_first_failure_ends_all():
    start = time.monotonic()
    with pytest.raises(TypeError):
        run_jobs(time.sleep, [60, "no seconds"], workers=2)
    assert time.monotonic() - start < 30


def test_errors_of_the_project_come_through():
    with pytest.raises(InvalidInputError, match="no shards"):
        run_jobs(read_episodes, [Path("/nowhere")], workers=1)


def test_a_killed_process_is_told_with_a_cure():
    with pytest.raises(UnavailableError, match="try fewer at once"):
        run_jobs(signal.raise_signal, [signal.SIGKILL], workers=1)
