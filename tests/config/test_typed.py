"""Plain data becomes a dataclass, or an error with key, value, expected type and file."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mstar_plan.config.typed import Place, to_dataclass
from mstar_plan.errors import ConfigError, InvalidInputError

PLACE = Place("", "conf/demo.yaml")


@dataclass(frozen=True)
class Inner:
    count: int = 1

    def __post_init__(self) -> None:
        if self.count < 0:
            raise InvalidInputError(f"count is {self.count}; it needs 0 or more", field="count")


@dataclass(frozen=True)
class Outer:
    name: str
    rate: float = 0.5
    flag: bool = False
    limit: int | None = None
    mode: Literal["fast", "slow"] = "fast"
    models: tuple[str, ...] = ()
    size: tuple[int, int] = (64, 64)
    tune: Mapping[str, float] = field(default_factory=dict)
    inner: Inner = field(default_factory=Inner)
    path: Path | None = None
    either: str | int = 0
    hidden: int = field(default=3, init=False)


def test_every_kind_of_field_is_filled() -> None:
    values = {
        "name": "a",
        "rate": 2,
        "flag": True,
        "limit": None,
        "mode": "slow",
        "models": ["x", "y"],
        "size": [3, 4],
        "tune": {"k": 1},
        "inner": {"count": 5},
        "path": "runs/x",
        "either": "word",
    }
    made = to_dataclass(Outer, values, PLACE)
    assert made == Outer("a", 2.0, True, None, "slow", ("x", "y"), (3, 4), {"k": 1.0}, Inner(5), Path("runs/x"), "word")
    assert isinstance(made.rate, float)


def test_absent_keys_keep_the_default_and_required_ones_are_asked_for() -> None:
    assert to_dataclass(Outer, {"name": "a"}, PLACE) == Outer("a")
    with pytest.raises(ConfigError, match=r"needs a value for 'name'; write name=\.\.\. or a line in conf/demo.yaml"):
        to_dataclass(Outer, {}, PLACE)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"limit": "many"}, r"limit is 'many' \(str\); it needs a whole number; it may stand in conf/demo.yaml"),
        ({"limit": 1.5}, r"limit is 1.5 \(float\); it needs a whole number"),
        ({"limit": True}, r"limit is True \(bool\); it needs a whole number"),
        ({"rate": "x"}, r"rate is 'x' \(str\); it needs a number"),
        ({"flag": 1}, r"flag is 1 \(int\); it needs true or false"),
        ({"name": 7}, r"name is 7 \(int\); it needs text \(quote it"),
        ({"name": None}, r"name is \(null\); it needs text"),
        ({"mode": "fats"}, r"mode is 'fats'; did you mean 'fast'"),
        ({"models": "x"}, r"models is 'x' \(str\); it needs a list"),
        ({"models": [1]}, r"models is 1 \(int\); it needs text"),
        ({"size": [1]}, r"size is \[1\] \(list\); it needs a list of 2"),
        ({"tune": 3}, r"tune is 3 \(int\); it needs key: value lines"),
        ({"tune": {"k": "x"}}, r"tune.k is 'x'"),
        ({"inner": 3}, r"inner is 3 \(int\); it needs key: value lines"),
        ({"inner": {"cuont": 3}}, r"inner has no key 'cuont'; did you mean 'count'"),
        ({"inner": {"count": -1}}, r"inner: count is -1; it needs 0 or more"),
        ({"either": [1]}, r"either is \[1\] \(list\); it needs text .* or a whole number"),
        ({"hidden": 4}, r"the configuration has no key 'hidden'"),
        ({"nmae": "b"}, r"has no key 'nmae'; did you mean 'name'\?.*may stand in conf/demo.yaml"),
    ],
)
def test_what_is_wrong_is_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        to_dataclass(Outer, {"name": "a", **values}, PLACE)


def test_another_file_may_hold_a_section() -> None:
    sections = {"inner": Place("inner", "conf/inner/big.yaml")}
    with pytest.raises(ConfigError, match=r"inner.count is 'x'.*conf/inner/big.yaml"):
        to_dataclass(Outer, {"name": "a", "inner": {"count": "x"}}, PLACE, sections=sections)


def test_a_refusal_of_plain_python_becomes_a_config_error() -> None:
    @dataclass(frozen=True)
    class Picky:
        value: int = 0

        def __post_init__(self) -> None:
            raise ValueError("never")

    with pytest.raises(ConfigError, match="the configuration is refused: never"):
        to_dataclass(Picky, {}, PLACE)


VALUES = st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.integers())


@given(st.dictionaries(st.sampled_from(["name", "rate", "limit", "inner", "tune"]) | st.text(max_size=8), VALUES))
def test_any_data_gives_a_dataclass_or_a_config_error(values: dict[str, Any]) -> None:
    with contextlib.suppress(ConfigError):
        assert isinstance(to_dataclass(Outer, values, PLACE), Outer)
