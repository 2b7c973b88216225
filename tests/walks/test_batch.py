"""Joining and splitting are each other's inverse, for tensors, Joinables and statics; alone it costs no copy."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_cache import Cache
from walk_driver import same

from mstar_plan.errors import ComponentError
from mstar_plan.walks.batch import Batch, gather, join_values, split_outputs, split_value

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool)


@dataclass(frozen=True)
class Setting:
    scale: float
    tags: tuple[str, ...] = ()


STATICS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text(max_size=3), st.builds(Setting, st.floats(allow_nan=False))
)


def a_tensor(rng: random.Random, rows: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    count = rows * int(torch.tensor(shape).prod()) if shape else rows
    return torch.tensor([rng.randint(0, 1) for _ in range(count)]).reshape(rows, *shape).to(dtype)


@st.composite
def batches(draw: st.DrawFn) -> list[Batch]:
    """Batches of one to four requests that may be joined: a tensor or more, a cache, statics."""
    rng = random.Random(draw(st.integers(0, 10**6)))
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    shapes = draw(st.lists(st.tuples(st.lists(st.integers(0, 3), max_size=3), st.sampled_from(DTYPES)), max_size=3))
    statics = draw(st.lists(STATICS, max_size=2))
    length = draw(st.integers(1, 9))
    made = []
    for rows in sizes:
        values: dict[str, Any] = {f"t{i}": a_tensor(rng, rows, tuple(s), d) for i, (s, d) in enumerate(shapes)}
        values |= {f"s{i}": value for i, value in enumerate(statics)}
        values["cache"] = Cache.of(torch.rand(rows, length, 2, dtype=torch.float64))
        made.append(Batch(values, rows))
    return made


@settings(deadline=None)
@given(parts=batches())
def test_join_then_split_is_identity(parts: list[Batch]) -> None:
    assert len({part.join_key() for part in parts}) == 1
    joined = Batch.join(parts)
    assert joined.size == sum(part.size for part in parts)
    back = split_outputs(joined.values, [part.size for part in parts])
    for part, again in zip(parts, back, strict=True):
        assert same(part.values, again)


@settings(deadline=None)
@given(parts=batches())
def test_rows_keep_their_order(parts: list[Batch]) -> None:
    joined = Batch.join(parts)
    for name, value in joined.values.items():
        if isinstance(value, torch.Tensor):
            assert same(value, torch.cat([part[name] for part in parts]))
        elif isinstance(value, Cache):
            assert [row for part in parts for row in part[name].rows] == list(value.rows)


def test_one_alone_is_its_own_values() -> None:
    batch = Batch({"x": torch.zeros(2, 3)}, 2)
    assert Batch.join([batch]) is batch
    outputs = {"y": torch.ones(2)}
    (back,) = split_outputs(outputs, [2])
    assert back["y"] is outputs["y"]


def test_a_split_is_a_view() -> None:
    whole = torch.arange(6).reshape(3, 2)
    first, second = split_value(whole, [1, 2])
    assert first.data_ptr() == whole.data_ptr()
    assert second.data_ptr() == whole[1:].data_ptr()


def key(**values: Any) -> Any:
    return Batch(values, 1).join_key()


def test_what_may_not_be_joined_has_another_key() -> None:
    x = torch.zeros(1, 2)
    assert key(x=x) == key(x=torch.ones(5, 2))
    different = [
        key(x=x), key(x=torch.zeros(1, 3)), key(x=torch.zeros(1, 2, 1)), key(x=x.double()), key(x=x.to("meta")),
        key(y=x), key(x=x, y=x), key(x=x, y=1), key(x=x, y=True), key(x=x, y=1.0), key(x=x, y=None), key(x=x, y="1"),
        key(x=x, y=Setting(1.0)), key(x=x, y=Setting(2.0)), key(x=1), key(x=None),
        key(x=Cache.of(torch.zeros(1, 2, 2))), key(x=Cache.of(torch.zeros(1, 3, 2))),
    ]  # fmt: skip
    assert len(set(different)) == len(different)


def test_ports_are_told_apart_by_name_not_by_place() -> None:
    """Two nodes of one component may tie its ports in another order."""
    wide, narrow = torch.zeros(1, 4), torch.zeros(1, 3)
    assert key(x=wide, y=narrow) != key(y=wide, x=narrow)


def test_a_static_that_cannot_be_compared_cannot_be_keyed() -> None:
    with pytest.raises(TypeError):
        hash(key(x=[1, 2]))


def test_statics_go_to_everyone() -> None:
    assert join_values(["a", "a"]) == "a"
    assert split_value("a", [1, 2]) == ["a", "a"]


@pytest.mark.parametrize("value", [torch.tensor(1.0), torch.zeros(2, 3), torch.zeros(4)])
def test_an_answer_without_the_batch_axis_is_named(value: torch.Tensor) -> None:
    with pytest.raises(ComponentError, match=r"output 'y' has shape \(.*\) for a batch of 3 rows; lead with the batch"):
        split_outputs({"y": value}, [1, 2])


def test_gather_stacks_joins_or_keeps() -> None:
    parts = [torch.zeros(2, 3), torch.ones(2, 3)]
    assert gather(parts, "here").shape == (2, 2, 3)
    assert gather(parts, "here", 2).shape == (2, 3, 2)
    assert gather(parts, "here", 1, True).shape == (2, 6)
    assert gather([1, "b", None], "here") == (1, "b", None)


@pytest.mark.parametrize(
    ("items", "dim", "message"),
    [
        ([torch.zeros(2, 3), torch.zeros(2, 4)], 1, r"here got shapes \[\(2, 3\), \(2, 4\)\].*axis 1; write equal"),
        ([torch.zeros(2)], 3, r"here got shapes \[\(2,\)\], which do not go together along axis 3"),
        ([torch.zeros(2), 3], 1, r"here got Tensor values; send tensors alone, or statics alone"),
        ([Cache([])], 1, r"here got Cache values"),
    ],
)
def test_gather_says_what_does_not_fit(items: list[Any], dim: int, message: str) -> None:
    with pytest.raises(ComponentError, match=message):
        gather(items, "here", dim)
