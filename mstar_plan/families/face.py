"""Faces: what a public walk takes and gives, port by port: any wire can offer it, and one test covers them all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from mstar_plan.errors import InvalidInputError, LimitExceededError, did_you_mean

Kind = Literal["tensor", "text", "integer", "number", "flag", "json"]
DTYPES: Mapping[str, torch.dtype] = {
    "float32": torch.float32,
    "float64": torch.float64,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "int64": torch.int64,
    "int32": torch.int32,
    "int16": torch.int16,
    "int8": torch.int8,
    "uint8": torch.uint8,
    "bool": torch.bool,
}


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED = _Required()


@dataclass(frozen=True, eq=False)
class Port:
    """One value that a walk takes or gives.

    Attributes:
        kind: A tensor, or a static: text, integer, number, flag (bool), or json (plain lists, dicts, text, numbers).
        dtype: Of a tensor, one of `DTYPES`.
        shape: Of a tensor, with its leading B; None stands for any size.
        description: What it is, in a few words.
        unit: Of its numbers; empty where there is none.
        default: Taken where a request leaves it out; `REQUIRED` if it must not.
        example: A value that works, for documentation and tests; None: zeros of `shape` with 1 for None.
        most: Most elements of a tensor, or characters of a text.
    """

    kind: Kind = "tensor"
    dtype: str = "float32"
    shape: tuple[int | None, ...] = ()
    description: str = ""
    unit: str = ""
    default: Any = REQUIRED
    example: Any = None
    most: int = 64 * 2**20

    def sample(self) -> Any:
        """A value that works."""
        if self.example is not None:
            return self.example
        if self.default is not REQUIRED:
            return self.default
        if self.kind == "tensor":
            return torch.zeros([size or 1 for size in self.shape], dtype=DTYPES[self.dtype])
        return {"text": "hello", "integer": 1, "number": 1.0, "flag": False, "json": {}}[self.kind]


def _same(values: Mapping[str, Any]) -> Mapping[str, Any]:
    return values


def _as_it_is(wire: str, value: Any) -> Any:
    del wire
    return value


@dataclass(frozen=True, eq=False)
class WalkFace:
    """A public walk as wires see it.

    Attributes:
        walk: Its name in the graph.
        inputs: {name: what it takes}.
        outputs: {wire: what it gives}.
        streams: {wire: what it gives again and again while it runs}; they may be asked for as a stream.
        description: One sentence.
        prepare: Makes the walk's own input values of checked ones. Called in the wire's thread: it may wait for a place
            in a pool and raise OverloadedError. What it takes hold of is released with the request.
        present: Makes a plain value (tensor, text, number, flag, json) of (wire, value) as the walk gives it.
    """

    walk: str
    inputs: Mapping[str, Port]
    outputs: Mapping[str, Port]
    streams: Mapping[str, Port] = field(default_factory=dict)
    description: str = ""
    prepare: Callable[[Mapping[str, Any]], Mapping[str, Any]] = _same
    present: Callable[[str, Any], Any] = _as_it_is

    def check(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the values with defaults filled in.

        Raises:
            InvalidInputError: A value is missing, unknown, or of another kind, dtype or shape.
            LimitExceededError: One is too large.
        """
        for name in values:
            if name not in self.inputs:
                what = f"walk {self.walk!r} has no input {name!r}"
                raise InvalidInputError(f"{what}{did_you_mean(name, self.inputs)}", field=name)
        return {name: _checked(self.walk, name, port, values) for name, port in self.inputs.items()}


def _checked(walk: str, name: str, port: Port, values: Mapping[str, Any]) -> Any:
    value = values.get(name, port.default)
    if value is REQUIRED:
        raise InvalidInputError(f"walk {walk!r} needs input {name!r}: {port.description}", field=name)
    if value is port.default:  # left out, or said to be as if it were
        return value
    if port.kind == "tensor":
        return _checked_tensor(name, port, value)
    kinds: Mapping[str, tuple[type, ...]] = {
        "text": (str,),
        "integer": (int,),
        "number": (int, float),
        "flag": (bool,),
        "json": (dict, list, str, int, float, bool, type(None)),
    }
    wrong = isinstance(value, bool) and port.kind in ("integer", "number")
    if wrong or not isinstance(value, kinds[port.kind]):
        what = f"input {name!r} is a {type(value).__name__}"
        raise InvalidInputError(f"{what}; send {port.kind}: {port.description}", field=name)
    numeric = port.kind in ("integer", "number")
    if numeric and isinstance(value, int | float) and not -(2**63) <= value < 2**63:  # NaN is in no range
        raise InvalidInputError(f"input {name!r} is {value}; send a finite number of 64 bits", field=name)
    if isinstance(value, str) and len(value) > port.most:
        what = f"input {name!r} has {len(value)} characters"
        raise LimitExceededError(f"{what}; at most {port.most} are taken", field=name)
    return value


def _checked_tensor(name: str, port: Port, value: Any) -> Tensor:
    if not isinstance(value, Tensor):
        raise InvalidInputError(f"input {name!r} is a {type(value).__name__}; send a tensor", field=name)
    dtype = str(value.dtype).removeprefix("torch.")
    if dtype != port.dtype:
        raise InvalidInputError(f"input {name!r} is {dtype}; send {port.dtype}", field=name)
    fits = len(value.shape) == len(port.shape) and all(
        want is None or have == want for have, want in zip(value.shape, port.shape, strict=True)
    )
    if not fits or 0 in value.shape:
        shape = [size if size is not None else "any" for size in port.shape]
        raise InvalidInputError(f"input {name!r} has shape {list(value.shape)}; send {shape}", field=name)
    if value.numel() > port.most:
        raise LimitExceededError(f"input {name!r} has {value.numel()} elements; at most {port.most}", field=name)
    if value.is_floating_point() and not bool(value.isfinite().all()):
        raise InvalidInputError(f"input {name!r} holds NaN or infinity; send finite numbers", field=name)
    return value
