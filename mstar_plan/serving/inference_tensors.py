"""Single values of the inference protocol: its tensors, BYTES and parameters as a port wants them, and back.

Every element count is compared with the shape before memory is taken. Single values (text, json, integer, number, flag)
are tensors of one element, or parameters.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np
from torch import Tensor

from mstar_plan.errors import ComponentError, InvalidInputError, LimitExceededError, did_you_mean
from mstar_plan.families.face import Port
from mstar_plan.serving.limits import ServerLimits
from mstar_plan.serving.proto.inference import inference_pb2 as pb
from mstar_plan.serving.served_models import shortened
from mstar_plan.serving.tensors import element_count, from_array, from_raw, to_raw

BYTES = "BYTES"
# Datatype of the protocol -> (dtype, field of InferTensorContents; none: raw only).
DATATYPES: Mapping[str, tuple[str, str]] = {
    "BOOL": ("bool", "bool_contents"),
    "INT8": ("int8", "int_contents"),
    "INT16": ("int16", "int_contents"),
    "INT32": ("int32", "int_contents"),
    "INT64": ("int64", "int64_contents"),
    "UINT8": ("uint8", "uint_contents"),
    "UINT16": ("uint16", "uint_contents"),
    "UINT32": ("uint32", "uint_contents"),
    "UINT64": ("uint64", "uint64_contents"),
    "FP16": ("float16", ""),
    "BF16": ("bfloat16", ""),
    "FP32": ("float32", "fp32_contents"),
    "FP64": ("float64", "fp64_contents"),
}
_WIRE = {dtype: datatype for datatype, (dtype, _) in DATATYPES.items()}
_SINGLE = {"text": BYTES, "json": BYTES, "integer": "INT64", "number": "FP64", "flag": "BOOL"}
_INTEGERS = tuple(name for name in DATATYPES if "INT" in name)
_TAKEN = {"integer": _INTEGERS, "number": ("FP64", "FP32", "FP16", "BF16", *_INTEGERS), "flag": ("BOOL",)}
_ELEMENTS = {  # of contents that do not fit 64-bit integers
    "bool_contents": np.dtype(np.bool_),
    "uint64_contents": np.dtype(np.uint64),
    "fp32_contents": np.dtype(np.float32),
    "fp64_contents": np.dtype(np.float64),
}
_INT64 = range(-(2**63), 2**63)


def datatype_of(port: Port) -> tuple[str, list[int]]:
    """Returns what the protocol calls a port's values: datatype and shape, in which -1 is any size."""
    if port.kind != "tensor":
        return _SINGLE[port.kind], [1]
    return _WIRE[port.dtype], [-1 if side is None else side for side in port.shape]


def read_value(port: Port, sent: pb.ModelInferRequest.InferInputTensor, raw: bytes | None, limits: ServerLimits) -> Any:
    """Returns an input as its port wants it: a tensor, or a plain value.

    Args:
        port: Of the walk.
        sent: The input; its name is one of the walk's.
        raw: Its entry of raw_input_contents; None: it has contents of its own.
        limits: Bounds on rank and elements.

    Raises:
        InvalidInputError: Another datatype, a size that is not that of the shape, or a value out of range.
        LimitExceededError: Too large.
    """
    name = sent.name
    for key in sent.parameters:
        what = f"input {name!r} has the parameter {shortened(key)!r}"
        raise InvalidInputError(f"{what}, which is not offered here; send its contents in the request", field=name)
    if raw is not None and sent.HasField("contents"):
        raise InvalidInputError(f"input {name!r} has contents and raw contents; send one of them", field=name)
    if sent.datatype != BYTES and sent.datatype not in DATATYPES:
        hint = did_you_mean(sent.datatype[:20], (*DATATYPES, BYTES))
        raise InvalidInputError(f"input {name!r} has datatype {shortened(sent.datatype)!r}{hint}", field=name)
    if port.kind == "tensor":
        wanted, _ = datatype_of(port)
        if sent.datatype != wanted:
            raise InvalidInputError(f"input {name!r} is {sent.datatype}; send {wanted}", field=name)
        return _tensor(sent, raw, limits)
    if element_count(name, sent.shape, limits) != 1:
        what = f"input {name!r} has shape {list(sent.shape)}"
        raise InvalidInputError(f"{what}; it is one {port.kind}: send shape [1]", field=name)
    if port.kind in ("text", "json"):
        return read_text(port, name, _one_bytes(sent, raw))
    if sent.datatype not in _TAKEN[port.kind]:
        what = f"input {name!r} is {sent.datatype}"
        raise InvalidInputError(f"{what}; it is one {port.kind}: send {datatype_of(port)[0]}", field=name)
    return _plain(port, name, _tensor(sent, raw, limits).item())


def read_parameter(port: Port, name: str, sent: pb.InferParameter) -> Any:
    """Returns an input that was sent as a parameter of the request.

    Raises:
        InvalidInputError: It is a tensor's, or of another type.
    """
    kind = sent.WhichOneof("parameter_choice")
    if port.kind == "tensor" or kind is None:
        what = f"parameter {name!r} is {'empty' if kind is None else 'a tensor'}"
        raise InvalidInputError(f"{what}; send {'a value' if kind is None else 'it as an input'}", field=name)
    value = getattr(sent, kind)
    if port.kind in ("text", "json"):
        if kind != "string_param":
            raise InvalidInputError(f"parameter {name!r} is {kind}; send string_param ({port.kind})", field=name)
        return read_text(port, name, value.encode())
    wanted = {"integer": (int,), "number": (int, float), "flag": (bool,)}[port.kind]
    if not isinstance(value, wanted) or (isinstance(value, bool) and port.kind != "flag"):
        choice = {"integer": "int64_param", "number": "double_param", "flag": "bool_param"}[port.kind]
        raise InvalidInputError(f"parameter {name!r} is {kind}; send {choice}", field=name)
    return _plain(port, name, value)


def read_text(port: Port, name: str, data: bytes) -> Any:
    """Returns UTF-8 text, or what the JSON in it says.

    Raises:
        InvalidInputError: It is no such thing; NaN and infinity are no JSON.
        LimitExceededError: It is too long.
    """
    if len(data) > 4 * port.most:
        raise LimitExceededError(f"input {name!r} has {len(data)} bytes; at most {port.most} characters", field=name)
    try:
        text = data.decode()
        if port.kind == "text":
            return text
        if len(text) > port.most:
            raise LimitExceededError(f"input {name!r} has {len(text)} characters; at most {port.most}", field=name)
        return json.loads(text, parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"input {name!r} is no UTF-8 text ({error.reason})", field=name) from error
    except (ValueError, RecursionError) as error:
        what = "nests too deep" if isinstance(error, RecursionError) else f"is no JSON: {str(error)[:80]}"
        raise InvalidInputError(f"input {name!r} {what}", field=name) from error


def write_value(port: Port, name: str, value: Any) -> tuple[str, list[int], bytes]:
    """Returns a plain value as (datatype, shape, raw contents).

    Raises:
        ComponentError: It is not what the port says.
    """
    if port.kind == "tensor" and isinstance(value, Tensor):
        dtype, shape, data = to_raw(value)
        return _WIRE[dtype], shape, data
    if port.kind == "text" and isinstance(value, str):
        return BYTES, [1], _prefixed(value.encode(errors="replace"))
    if port.kind == "json":
        try:
            text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise ComponentError(f"output {name!r} is no plain data: {error}", field=name) from error
        return BYTES, [1], _prefixed(text.encode(errors="replace"))
    if port.kind == "flag" and isinstance(value, bool):
        return "BOOL", [1], struct.pack("<?", value)
    if port.kind == "integer" and isinstance(value, int) and value in _INT64:
        return "INT64", [1], struct.pack("<q", value)
    if port.kind == "number" and isinstance(value, int | float):
        return "FP64", [1], struct.pack("<d", value)
    raise ComponentError(f"output {name!r} is a {type(value).__name__}, which is no {port.kind}", field=name)


def _tensor(sent: pb.ModelInferRequest.InferInputTensor, raw: bytes | None, limits: ServerLimits) -> Tensor:
    name, (dtype, typed) = sent.name, DATATYPES.get(sent.datatype, ("", ""))
    if raw is not None:
        return from_raw(name, dtype, sent.shape, raw, limits)
    if not typed:
        raise InvalidInputError(f"input {name!r} is {sent.datatype}, which travels in raw_input_contents", field=name)
    count = element_count(name, sent.shape, limits)
    values = _contents(sent, typed, count)
    wide = np.fromiter(values, _ELEMENTS.get(typed, np.dtype(np.int64)), count)
    if count and "INT" in sent.datatype:
        kind, least, most = np.iinfo(dtype), int(wide.min()), int(wide.max())
        if not kind.min <= least <= most <= kind.max:
            what = f"input {name!r} holds {least} to {most}"
            raise InvalidInputError(f"{what}; {sent.datatype} goes from {kind.min} to {kind.max}", field=name)
        wide = wide.astype(dtype)
    return from_array(name, dtype, sent.shape, wide)


def _contents(sent: pb.ModelInferRequest.InferInputTensor, field: str, count: int) -> Any:
    """The typed elements of an input, as many as its shape has."""
    others = [each.name for each, _ in sent.contents.ListFields() if each.name != field]
    if others:
        what = f"input {sent.name!r} is {sent.datatype} and has {others[0]}"
        raise InvalidInputError(f"{what}; send {field}", field=sent.name)
    values = getattr(sent.contents, field)
    if len(values) != count:
        what = f"input {sent.name!r} has {len(values)} elements in {field}"
        raise InvalidInputError(f"{what}; shape {list(sent.shape)} needs {count}", field=sent.name)
    return values


def _one_bytes(sent: pb.ModelInferRequest.InferInputTensor, raw: bytes | None) -> bytes:
    """The only element of a BYTES tensor: raw ones have their length before them, in four bytes."""
    name = sent.name
    if sent.datatype != BYTES:
        raise InvalidInputError(f"input {name!r} is {sent.datatype}; send {BYTES}", field=name)
    if raw is None:
        only: bytes = _contents(sent, "bytes_contents", 1)[0]
        return only
    size = int.from_bytes(raw[:4], "little")
    if len(raw) < 4 or len(raw) != 4 + size:
        what = f"input {name!r} has {len(raw)} raw bytes"
        raise InvalidInputError(f"{what}; send one element: its length in 4 bytes, and then as many", field=name)
    return raw[4:]


def _plain(port: Port, name: str, value: float) -> float:
    if port.kind == "integer" and value not in _INT64:
        raise InvalidInputError(f"input {name!r} is {value}; send a whole number of 64 bits", field=name)
    if port.kind == "number" and not math.isfinite(value):
        raise InvalidInputError(f"input {name!r} is {value}; send a finite number", field=name)
    return value


def _prefixed(data: bytes) -> bytes:
    return struct.pack("<I", len(data)) + data


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not allowed")
