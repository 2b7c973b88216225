"""Values of walks as JSON: tensors with dtype, shape and data; everything else as it is."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from torch import Tensor

from mstar_plan.errors import ComponentError, InvalidInputError
from mstar_plan.families.face import DTYPES, Port
from mstar_plan.serving.tensors import element_count, from_array, from_raw, to_raw

Encoding = Literal["list", "base64"]
MAX_DEPTH = 16  # of lists inside lists
_TENSOR = {"dtype", "shape", "data"}


def value_of(name: str, given: Any, port: Port | None) -> Any:
    """Returns what a request sends for one input; a face checks it then.

    Args:
        name: Of the input.
        given: What it sends: for a tensor {"dtype", "shape", "data"}, where data is base64 of little-endian bytes, or
            numbers, flat or nested; dtype and shape may be left out where the port and the nesting say them.
        port: What the walk takes there; None if there is no such input.

    Raises:
        InvalidInputError: It is no tensor, its data do not have the dtype or the shape, or a number is not finite.
        LimitExceededError: It is too large.
    """
    if port is not None and port.kind == "tensor":
        return _tensor(name, given, port)
    _check_finite(name, given)
    return given


def told(value: Any, encoding: Encoding) -> Any:
    """Returns a value of a walk as JSON.

    Raises:
        ComponentError: It has no form in JSON.
    """
    if isinstance(value, Tensor):
        dtype, shape, data = to_raw(value)
        if encoding == "base64":
            return {"dtype": dtype, "shape": shape, "data": base64.b64encode(data).decode()}
        numbers = value.detach().cpu().reshape(-1).tolist()
        return {"dtype": dtype, "shape": shape, "data": [_number(each) for each in numbers]}
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, Mapping):
        return {str(key): told(each, encoding) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [told(each, encoding) for each in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    raise ComponentError(f"a value of type {type(value).__name__} has no form in JSON; present it as plain data")


def _number(value: Any) -> Any:
    """What is not finite goes as text, for JSON has no other way."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _tensor(name: str, given: Any, port: Port) -> Tensor:
    sent = given if isinstance(given, dict) else {"data": given}
    if set(sent) - _TENSOR or "data" not in sent:
        what = f"input {name!r} has the keys {sorted(str(key)[:40] for key in sent)[:8]}"
        raise InvalidInputError(f"{what}; a tensor has dtype, shape and data", field=name)
    dtype, data = sent.get("dtype", port.dtype), sent["data"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        known = ", ".join(DTYPES)
        raise InvalidInputError(f"input {name!r} has dtype {str(dtype)[:40]!r}; use one of {known}", field=name)
    shape = _shape(name, sent.get("shape"), data)
    if isinstance(data, str):
        try:
            return from_raw(name, dtype, shape, base64.b64decode(data, validate=True))
        except (binascii.Error, ValueError) as error:
            raise InvalidInputError(f"data of input {name!r} are not base64: {error}", field=name) from None
    count = element_count(name, shape)
    numbers = _flat(name, data, count)
    if len(numbers) != count:
        what = f"input {name!r} has {len(numbers)} numbers"
        raise InvalidInputError(f"{what}; shape {list(shape)} needs {count}", field=name)
    return _from_numbers(name, dtype, shape, numbers)


def _shape(name: str, given: Any, data: Any) -> list[int]:
    if given is None and not isinstance(data, str):
        shape: list[int] = []
        while isinstance(data, list) and len(shape) <= MAX_DEPTH:
            shape.append(len(data))
            data = data[0] if data else None
        return shape
    if not isinstance(given, list) or not all(type(side) is int for side in given):
        raise InvalidInputError(f"shape of input {name!r} is no list of whole numbers", field=name)
    return given


def _flat(name: str, data: Any, most: int) -> list[Any]:
    """Numbers of nested lists, in order; all lists of one level are equally long, or a count will not fit."""
    level = data if isinstance(data, list) else [data]
    for _ in range(MAX_DEPTH):
        nested = [isinstance(each, list) for each in level]
        if not any(nested):
            return level
        lengths = {len(each) for each in level if isinstance(each, list)}
        if not all(nested) or len(lengths) != 1 or len(level) * max(lengths) > most:
            raise InvalidInputError(f"data of input {name!r} are lists of uneven length", field=name)
        level = [each for inner in level for each in inner]
    raise InvalidInputError(f"data of input {name!r} are nested more than {MAX_DEPTH} deep", field=name)


def _from_numbers(name: str, dtype: str, shape: list[int], numbers: list[Any]) -> Tensor:
    torch_dtype = DTYPES[dtype]
    wanted: tuple[type, ...] = (bool,) if dtype == "bool" else (int, float) if torch_dtype.is_floating_point else (int,)
    for each in numbers:
        if type(each) not in wanted:
            what = f"input {name!r} holds {str(each)[:40]!r}, a {type(each).__name__}"
            raise InvalidInputError(f"{what}; {dtype} takes {' or '.join(w.__name__ for w in wanted)}", field=name)
    try:
        plain = np.array(numbers, dtype=np.float64 if torch_dtype.is_floating_point else np.dtype(dtype))
    except (OverflowError, ValueError) as error:
        raise InvalidInputError(f"a number of input {name!r} does not fit {dtype}: {error}", field=name) from None
    if not torch_dtype.is_floating_point:
        return from_array(name, dtype, shape, plain)
    made = from_array(name, "float64", shape, plain).to(torch_dtype)
    if not bool(made.isfinite().all()):
        what = f"input {name!r} holds a number that is not finite in {dtype}"
        raise InvalidInputError(f"{what}; send finite numbers", field=name)
    return made


def _check_finite(name: str, value: Any) -> None:
    """JSON may hold 1e999, which no walk should see; its depth has been bounded when it was read."""
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidInputError(f"input {name!r} holds a number that is not finite", field=name)
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for each in inner:
        _check_finite(name, each)
