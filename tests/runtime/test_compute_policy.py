"""Compute policies: off changes no bit; patience ends a search that has stopped improving."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mstar_plan.errors import ConfigError, InvalidInputError
from mstar_plan.runtime.compute_policy import Patience, make_policy
from mstar_plan.runtime.runtime import Runtime
from mstar_plan.walks.component import Batching, FunctionComponent
from mstar_plan.walks.graph import Graph
from mstar_plan.walks.state import LoopStop
from mstar_plan.walks.step import Loop, Node
from mstar_plan.walks.walk import Walk


def scripted(costs: list[list[float]]) -> Graph:
    """A search whose i-th iteration gives `costs[i]`, one number a row."""
    table = torch.tensor(costs, dtype=torch.float64)

    def look(i: torch.Tensor, n: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return table[int(i[0])], n + 1

    look_up = FunctionComponent(look, ("i", "n"), ("cost", "n"), Batching.ALONE)
    loop = Loop(Node("look", ("i", "n"), ("cost", "n")), times=len(costs), carry=("n",), index="i", name="search")
    return Graph("g", {"look": look_up}, {"search": Walk("search", loop, ("n",), ("n", "cost"))})


def run(costs: list[list[float]], policy: Any) -> tuple[LoopStop, int]:
    with Runtime(scripted(costs)) as runtime:
        result = runtime.submit("search", {"n": torch.zeros(len(costs[0]))}, policy=policy).result(20)
    end = result.loop_ends["search"]
    assert result.outputs["n"][0].item() == end.iterations
    return end.stop, end.iterations


@pytest.mark.parametrize(
    ("costs", "iterations"),
    [
        ([5, 4, 3, 2, 1, 0], None),
        ([5, 4, 4, 4, 1, 0], 4),
        ([5, 6, 7, 1, 0, 0], 3),
        ([5, 4, 4, 3, 3, 2], None),  # never two in a row
        ([5, 4.9, 4.8, 4.7, 4.6, 4.5], 3),  # too little to count ...
        ([5, 4.7, 4.4, 4.1, 3.8, 3.5], None),  # ... but small steps add up
        ([math.nan, math.nan, math.nan, 1, 0, 0], 3),
        ([math.nan, 3, 2, 1, 0, -1], None),
    ],
)
def test_patience_ends_a_loop_that_stalls(costs: list[float], iterations: int | None) -> None:
    policy = Patience(value="cost", tolerance=0.5, patience=2)
    expected = (LoopStop.COUNT, len(costs)) if iterations is None else (LoopStop.POLICY, iterations)
    assert run([[c] for c in costs], policy) == expected


def test_a_loop_goes_on_while_any_row_improves() -> None:
    rows = [[5.0, 5.0], [5.0, 4.0], [4.0, 4.0], [4.0, 3.0], [4.0, 3.0], [4.0, 3.0]]
    assert run(rows, Patience(value="cost", patience=2)) == (LoopStop.POLICY, 6)
    assert run([[r[0]] for r in rows], Patience(value="cost", patience=1)) == (LoopStop.POLICY, 2)


def test_other_loops_are_left_alone() -> None:
    assert run([[1.0]] * 6, Patience(loop="another", value="cost", patience=1)) == (LoopStop.COUNT, 6)


def test_a_value_that_is_not_there_is_an_error() -> None:
    with pytest.raises(InvalidInputError, match=r"watches 'coast' in loop 'search'.*did you mean 'cost'"):
        run([[1.0]] * 3, Patience(value="coast"))


@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 999), rows=st.integers(1, 3), iterations=st.integers(1, 5))
def test_off_is_bit_equal_to_a_policy_that_never_acts(
    toys: SimpleNamespace, seed: int, rows: int, iterations: int
) -> None:
    values = toys.plan_values(seed, rows=rows, iterations=iterations)
    endless = Patience(value="cost", patience=10**9)
    with Runtime(toys.plan_graph()) as runtime:
        off, none, idle = (
            runtime.submit("plan", values, policy=policy).result(20) for policy in (make_policy("off"), None, endless)
        )
    by_hand = toys.by_hand(toys.plan_graph(), "plan", values)
    for result in (off, none, idle):
        assert toys.equal(result.outputs, by_hand)
        assert result.loop_ends == off.loop_ends


def test_every_request_has_its_own_memory(toys: SimpleNamespace) -> None:
    policy = Patience(value="cost", tolerance=1e9, patience=2)  # ends after three iterations, always
    with Runtime(toys.plan_graph()) as runtime:
        futures = [runtime.submit("plan", toys.plan_values(i, iterations=9), policy=policy) for i in range(4)]
        ends = [future.result(20).loop_ends["search"] for future in futures]
    assert [(end.stop, end.iterations) for end in ends] == [(LoopStop.POLICY, 3)] * 4


def test_policies_by_name() -> None:
    assert make_policy("off") is None
    assert make_policy("patience") == Patience()
    with pytest.raises(ConfigError, match="no compute policy 'patient'; did you mean 'patience'"):
        make_policy("patient")


@pytest.mark.parametrize(
    ("field", "value"), [("tolerance", -1.0), ("tolerance", math.nan), ("patience", 0), ("patience", True)]
)
def test_patience_checks_itself(field: str, value: Any) -> None:
    with pytest.raises(InvalidInputError, match=field):
        Patience(**{field: value})
