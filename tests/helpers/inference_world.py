"""What the tests of the inference protocol serve: a model of small walks that show every kind of value, and be held."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import tritonclient.grpc as triton
from torch import Tensor
from tritonclient.utils import np_to_triton_dtype

from mstar_plan.errors import OverloadedError
from mstar_plan.families.face import DTYPES, Port, WalkFace
from mstar_plan.families.servable import Servable
from mstar_plan.runtime.runtime import Runtime
from mstar_plan.serving.limits import ServerLimits
from mstar_plan.serving.server import PlanningServer, ServerConfig
from mstar_plan.walks.component import FunctionComponent
from mstar_plan.walks.graph import Graph
from mstar_plan.walks.step import Loop, Node, Sequential, Step
from mstar_plan.walks.walk import Walk

ROW_TENSOR = torch.tensor([[1.0, 2.0]])
EVERY = tuple(DTYPES)  # names of the ports of the walk "every", too


class Gate:
    """A component that waits until it is let through; `waiting` says that somebody does."""

    inputs, outputs = ("x",), ("x",)

    def __init__(self) -> None:
        self.open, self.waiting, self.rounds = threading.Event(), threading.Event(), 0

    def __call__(self, batch: Any) -> Mapping[str, Any]:
        self.waiting.set()
        self.rounds += 1
        self.open.wait(0.01)  # a round of a loop: between two of them a request can be taken back
        return {"x": batch["x"]}


@dataclass(frozen=True, eq=False)
class Held:
    """A value that has hold of a place until it is released."""

    book: set[int]
    places: int = 1

    def __post_init__(self) -> None:
        if len(self.book) >= self.places:
            raise OverloadedError("all places are taken; try again", retry_after_s=0.25)
        self.book.add(id(self))

    def release(self) -> None:
        self.book.discard(id(self))


@dataclass(frozen=True, eq=False)
class Toy:
    """The model, and what a test wants to see of it."""

    servable: Servable
    gate: Gate
    book: set[int] = field(default_factory=set)

    @property
    def graph(self) -> Graph:
        return self.servable.graph


def walks() -> dict[str, Walk]:
    count = Loop(
        Node("count", ("total", "step"), {"total": "total", "said": "said"}),
        times="times",
        carry={"total": "x"},
        collect={"said": "all"},
        limit=1000,
        name="counting",
    )
    wait = Loop(Node("gate", ("x",), ("x",)), times=1000, carry=("x",), name="waiting")
    steps: dict[str, tuple[Step, tuple[str, ...], tuple[str, ...]]] = {
        "add": (Node("add", ("x", "y", "scale", "negate"), ("sum",)), ("x", "y", "scale", "negate"), ("sum",)),
        "count": (count, ("x", "step", "times"), ("total", "all")),
        "every": (Node("every", EVERY, tuple(f"{n}_out" for n in EVERY)), EVERY, tuple(f"{n}_out" for n in EVERY)),
        "say": (Node("say", ("text", "data", "x"), ("text_out", "data_out", "length", "share", "empty")),
                ("text", "data", "x"), ("text_out", "data_out", "length", "share", "empty")),
        "wait": (wait, ("x",), ("x",)),
        "fail": (Node("fail", ("x",), ("y",)), ("x",), ("y",)),
        "hold": (Sequential((Node("hold", ("x", "place"), ("y",)),)), ("x", "place"), ("y",)),
    }  # fmt: skip
    return {name: Walk(name, *parts) for name, parts in steps.items()}


def faces(book: set[int]) -> dict[str, WalkFace]:
    row = Port(shape=(None, None), description="numbers", unit="m", example=torch.ones(1, 2))
    total = Port(shape=(None, None))
    said = Port(shape=(None,), description="sum of a row")
    return {
        "add": WalkFace(
            "add",
            {
                "x": row,
                "y": Port(shape=(None, None), default=None),
                "scale": Port("number", default=1.0),
                "negate": Port("flag", default=False),
            },
            {"sum": row},
            description="Adds.",
        ),
        "count": WalkFace(
            "count",
            {"x": row, "step": Port("number", default=1.0), "times": Port("integer", default=3)},
            {"total": total, "all": Port(shape=(None, None))},
            {"said": said, "total": total},
        ),
        "every": WalkFace(
            "every",
            {name: Port(dtype=name, shape=(None, 3)) for name in EVERY},
            {f"{name}_out": Port(dtype=name, shape=(None, 3)) for name in EVERY},
        ),
        "say": WalkFace(
            "say",
            {
                "text": Port("text", most=100),
                "data": Port("json", default={}, most=1000),
                "x": Port(shape=(None,), example=torch.ones(1), default=torch.ones(1)),
            },
            {
                "text_out": Port("text"),
                "data_out": Port("json"),
                "length": Port("integer"),
                "share": Port("number"),
                "empty": Port("flag"),
            },
            prepare=lambda v: {**v, "data": _frozen(v["data"])},
            present=lambda wire, value: _thawed(value) if wire == "data_out" else value,
        ),
        "wait": WalkFace("wait", {"x": row}, {"x": row}, {"x": row}),
        "fail": WalkFace("fail", {"x": row}, {"y": row}),
        "hold": WalkFace("hold", {"x": row}, {"y": row}, prepare=lambda v: {**v, "place": Held(book)}),
    }


def _frozen(data: Any) -> str:
    return repr(data)


def _thawed(text: str) -> Any:
    return {"said": text}


def add(x: Tensor, y: Tensor | None, scale: float, negate: bool) -> Tensor:
    total = x if y is None else x + y
    return total * (-scale if negate else scale)


def count(total: Tensor, step: float) -> tuple[Tensor, Tensor]:
    return total + step, (total + step).sum(1)


def say(text: str, data: str, x: Tensor) -> tuple[Any, ...]:
    del x
    return text.upper(), data, len(text), len(text) / 8, not text


def fail(x: Tensor) -> Tensor:
    raise ZeroDivisionError(f"of {x.shape[0]} rows")


def toy(name: str = "toy") -> Toy:
    gate, book = Gate(), set()
    outs = tuple(f"{n}_out" for n in EVERY)
    components = {
        "add": FunctionComponent(add, ("x", "y", "scale", "negate"), ("sum",)),
        "count": FunctionComponent(count, ("total", "step"), ("total", "said")),
        "every": FunctionComponent(lambda *values: values, EVERY, outs),
        "say": FunctionComponent(say, ("text", "data", "x"), ("text_out", "data_out", "length", "share", "empty")),
        "gate": gate,
        "fail": FunctionComponent(fail, ("x",), ("y",)),
        "hold": FunctionComponent(lambda x, place: x + len(place.book), ("x", "place"), ("y",)),
    }
    graph = Graph(name, components, walks())
    servable = Servable(name=name, graph=graph, faces=faces(book), description="Toy walks.", licence="Apache-2.0")
    return Toy(servable, gate, book)


@contextmanager
def served(
    *toys: Toy, limits: ServerLimits | None = None, **servables: Servable
) -> Iterator[tuple[PlanningServer, Runtime]]:
    """A server with these models, on a runtime of its own, and no planning beside them."""
    everything = {**{each.servable.name: each.servable for each in toys}, **servables}
    config = ServerConfig(port=0, limits=limits or ServerLimits())
    with (
        Runtime({name: each.graph for name, each in everything.items()}) as runtime,
        PlanningServer({}, config, servables=everything, runtime=runtime) as server,
    ):
        yield server, runtime


def sent(name: str, array: Any, datatype: str = "") -> triton.InferInput:
    """An input as the client sends it: raw."""
    value = np.asarray(array)
    made = triton.InferInput(name, list(value.shape), datatype or np_to_triton_dtype(value.dtype))
    made.set_data_from_numpy(value)
    return made


def words(text: str) -> np.ndarray[Any, np.dtype[np.object_]]:
    """Text as the client sends it."""
    return np.array([text], dtype=object)


def until(true: Callable[[], bool], timeout_s: float = 5.0) -> bool:
    """Waits until something is true; False if it never was."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if true():
            return True
        time.sleep(0.005)
    return true()
