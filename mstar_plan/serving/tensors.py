"""Tensors as bytes and back, for every wire: row-major, little-endian; all is checked before memory is taken for it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mstar_plan.errors import ComponentError, InvalidInputError, LimitExceededError, did_you_mean
from mstar_plan.serving.limits import ServerLimits

_DEFAULT = ServerLimits()

# Name -> dtype of torch, and that of numpy with the same bytes (bfloat16 has none of its own).
_DTYPES: Mapping[str, tuple[torch.dtype, np.dtype[Any]]] = {
    "bool": (torch.bool, np.dtype("?")),
    "int8": (torch.int8, np.dtype("<i1")),
    "int16": (torch.int16, np.dtype("<i2")),
    "int32": (torch.int32, np.dtype("<i4")),
    "int64": (torch.int64, np.dtype("<i8")),
    "uint8": (torch.uint8, np.dtype("<u1")),
    "uint16": (torch.uint16, np.dtype("<u2")),
    "uint32": (torch.uint32, np.dtype("<u4")),
    "uint64": (torch.uint64, np.dtype("<u8")),
    "float16": (torch.float16, np.dtype("<f2")),
    "bfloat16": (torch.bfloat16, np.dtype("<i2")),
    "float32": (torch.float32, np.dtype("<f4")),
    "float64": (torch.float64, np.dtype("<f8")),
}
DTYPE_NAMES = tuple(_DTYPES)  # all that travel


def from_raw(name: str, dtype: str, shape: Sequence[int], data: bytes, limits: ServerLimits = _DEFAULT) -> Tensor:
    """Returns the tensor that these bytes are; its memory is its own.

    Args:
        name: What errors call it.
        dtype: One of `DTYPE_NAMES`.
        shape: Its sides.
        data: Elements, row-major and little-endian; bool is one byte each, 0 or 1.
        limits: Bounds on rank and elements.

    Raises:
        InvalidInputError: Unknown dtype, a negative side, a size that is not that of the data, or a bool that is
            neither 0 nor 1. NaN and infinity pass: whether they may is the walk's to say.
        LimitExceededError: Too many dimensions or elements.
    """
    _, numpy_dtype = _dtype(name, dtype)
    count = element_count(name, shape, limits)
    expected = count * numpy_dtype.itemsize
    if len(data) != expected:
        what = "is truncated" if len(data) < expected else "is too long"
        raise InvalidInputError(
            f"{name!r} {what}: shape {list(shape)} of {dtype} needs {expected} bytes, got {len(data)}",
            field=name,
            details={"expected_bytes": str(expected), "got_bytes": str(len(data))},
        )
    return from_array(name, dtype, shape, np.frombuffer(data, dtype=numpy_dtype))


def from_array(name: str, dtype: str, shape: Sequence[int], flat: np.ndarray[Any, np.dtype[Any]]) -> Tensor:
    """Returns a copy of a flat array as a tensor of this shape, whose size has been checked; for `from_raw` and kin.

    Raises:
        InvalidInputError: Unknown dtype, or a bool that is neither 0 nor 1.
    """
    torch_dtype, _ = _dtype(name, dtype)
    if dtype == "bool" and (flat.view(np.uint8) > 1).any():
        raise InvalidInputError(f"{name!r} holds bools that are neither 0 nor 1", field=name)
    native = np.array(flat.reshape(tuple(shape)), dtype=flat.dtype.newbyteorder("="))  # a copy, aligned and writable
    tensor = torch.from_numpy(native)
    return tensor.view(torch.bfloat16) if torch_dtype is torch.bfloat16 else tensor


def to_raw(tensor: Tensor) -> tuple[str, list[int], bytes]:
    """Returns a tensor of any device as (dtype, shape, bytes); see `from_raw`.

    Raises:
        ComponentError: Its dtype is none that travels.
    """
    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype not in _DTYPES:
        raise ComponentError(f"a tensor of {dtype} does not travel; give one of {', '.join(_DTYPES)}")
    plain = tensor.detach().contiguous()
    array = (plain.view(torch.int16) if dtype == "bfloat16" else plain).numpy(force=True)
    return dtype, list(tensor.shape), array.astype(_DTYPES[dtype][1], copy=False).tobytes()


def element_count(name: str, shape: Sequence[int], limits: ServerLimits = _DEFAULT) -> int:
    """Returns how many elements a tensor of this shape has.

    Raises:
        InvalidInputError: A side is negative.
        LimitExceededError: Too many dimensions or elements.
    """
    if len(shape) > limits.max_tensor_rank:
        what = f"{name!r} has {len(shape)} dimensions"
        raise LimitExceededError(f"{what}; max_tensor_rank is {limits.max_tensor_rank}", field=name)
    if any(side < 0 for side in shape):
        raise InvalidInputError(f"{name!r} has shape {list(shape)}; a side is negative", field=name)
    count, most = math.prod(shape), limits.max_tensor_elements  # Python integers do not overflow
    if max(count, *shape, 0) > most:  # a zero among huge sides makes an empty tensor that nothing can describe
        raise LimitExceededError(f"{name!r} has shape {list(shape)}; max_tensor_elements is {most}", field=name)
    return count


def _dtype(name: str, dtype: str) -> tuple[torch.dtype, np.dtype[Any]]:
    if dtype not in _DTYPES:
        hint = did_you_mean(dtype[:40], _DTYPES)
        raise InvalidInputError(f"{name!r} has dtype {dtype[:40]!r}, which does not travel{hint}", field=name)
    return _DTYPES[dtype]
