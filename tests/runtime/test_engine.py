"""Engine: joins calls that fit, and keeps a failure with its own call."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mstar_plan.errors import ComponentError, MStarError
from mstar_plan.runtime.engine import Engine, join_key
from mstar_plan.walks.batch import Batch
from mstar_plan.walks.component import Batching


def batch(*rows: float, **statics: Any) -> Batch:
    return Batch({"x": torch.tensor(rows), **statics}, len(rows))


def test_calls_are_joined_and_their_answers_split(toys: SimpleNamespace) -> None:
    double = toys.Counted(lambda b: {"y": b["x"] * 2, "mode": b["mode"]})
    answers = Engine().run("double", double, [batch(1, 2, mode="a"), batch(3, mode="a"), batch(4, 5, 6, mode="a")])
    assert double.sizes == [6]
    assert [a["y"].tolist() for a in answers] == [[2, 4], [6], [8, 10, 12]]
    assert {a["mode"] for a in answers} == {"a"}


def test_one_call_gets_its_own_values(toys: SimpleNamespace) -> None:
    seen: list[Any] = []
    lone = batch(1, 2)
    Engine().run("look", toys.Counted(lambda b: seen.append(b) or {}), [lone])
    assert seen[0] is lone


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        (batch(1), batch(2, 3), True),
        (batch(1), Batch({"x": torch.zeros(1, 2)}, 1), False),
        (batch(1), Batch({"x": torch.zeros(1, dtype=torch.float64)}, 1), False),
        (batch(1, k=1), batch(1, k=1), True),
        (batch(1, k=1), batch(1, k=2), False),
        (batch(1, k=1), batch(1, k=True), False),
        (Batch({"x": torch.zeros(1)}, 1), Batch({"z": torch.zeros(1)}, 1), False),
    ],
)
def test_only_what_fits_has_an_equal_key(a: Batch, b: Batch, same: bool) -> None:
    component = object()
    assert (join_key(component, a) == join_key(component, b)) is same  # type: ignore[arg-type]


def test_what_cannot_be_compared_is_not_joined() -> None:
    assert join_key(object(), batch(1, k=[1, 2])) is None  # type: ignore[arg-type]


def test_alone_and_ragged_have_keys_of_their_own(toys: SimpleNamespace) -> None:
    assert join_key(toys.Counted(dict, Batching.ALONE), batch(1)) is None
    ragged = toys.Counted(dict, Batching.RAGGED)
    assert join_key(ragged, batch(1)) == join_key(ragged, Batch({"x": torch.zeros(1, 7)}, 1))


@given(values=st.lists(st.lists(st.integers(-3, 9), min_size=1, max_size=3), min_size=1, max_size=6))
def test_only_the_calls_that_fail_alone_fail(values: list[list[int]]) -> None:
    def root(b: Batch) -> dict[str, Any]:
        if (b["x"] < 0).any():
            raise ValueError("negative")
        return {"y": b["x"] + 1}

    answers = Engine().run("root", root, [batch(*v) for v in values])
    for answer, v in zip(answers, values, strict=True):
        if min(v) < 0:
            assert isinstance(answer, ComponentError)
        else:
            assert not isinstance(answer, MStarError)
            assert answer["y"].tolist() == [i + 1 for i in v]


def test_an_answer_with_other_rows_is_not_shared_out(toys: SimpleNamespace) -> None:
    total = toys.Counted(lambda b: {"y": b["x"].sum(0, keepdim=True)})  # wrong: mixes the requests
    answers = Engine().run("total", total, [batch(1), batch(2), batch(3)])
    assert [a["y"].item() for a in answers] == [1, 2, 3]
    assert total.sizes == [3, 1, 1, 1]


def test_a_ragged_component_that_loses_an_answer_is_called_singly(toys: SimpleNamespace) -> None:
    class Lossy(toys.Counted):  # type: ignore[name-defined,misc]
        def run(self, batches: Sequence[Batch]) -> list[dict[str, Any]]:
            return super().run(batches)[1:]  # type: ignore[no-any-return]

    lossy = Lossy(lambda b: {"y": b["x"]}, Batching.RAGGED)
    answers = Engine().run("lossy", lossy, [batch(1), batch(2)])
    assert [a["y"].item() for a in answers] == [1, 2]


@dataclass(frozen=True)
class Cache:
    rows: tuple[int, ...]
    kind: str = "kv"

    def join_key(self) -> Hashable:
        return self.kind

    @classmethod
    def join(cls, parts: Sequence[Cache]) -> Cache:
        return cls(tuple(row for part in parts for row in part.rows), parts[0].kind)

    def split(self, sizes: Sequence[int]) -> list[Cache]:
        rows = iter(self.rows)
        return [Cache(tuple(next(rows) for _ in range(size)), self.kind) for size in sizes]


def test_joinables_join_and_split_themselves(toys: SimpleNamespace) -> None:
    step = toys.Counted(lambda b: {"cache": Cache(tuple(r + 1 for r in b["cache"].rows), b["cache"].kind)})
    calls = [Batch({"cache": Cache((1, 2))}, 2), Batch({"cache": Cache((5,))}, 1)]
    assert [a["cache"] for a in Engine().run("step", step, calls)] == [Cache((2, 3)), Cache((6,))]
    assert step.sizes == [3]
    assert join_key(step, calls[0]) != join_key(step, Batch({"cache": Cache((1, 2), "other")}, 2))
