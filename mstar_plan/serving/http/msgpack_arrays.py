"""MessagePack with NumPy arrays, as openpi's clients speak it; nothing is trusted, and nothing is ever unpickled."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgpack
import numpy as np

from mstar_plan.errors import InvalidInputError, LimitExceededError

MAX_ITEMS = 4096  # of one map or list, and of all maps and lists together
MAX_RANK = 8
MAX_TEXT = 65536
MAX_DEPTH = 8
_KINDS = "biuf"  # bool, integers, floats: nothing with references, texts or structure
_ARRAY, _SCALAR = b"__ndarray__", b"__npgeneric__"


def pack(value: Any) -> bytes:
    """Returns a message; arrays and NumPy scalars are maps of their bytes, dtype and shape."""
    packed: bytes = msgpack.packb(value, default=_told)
    return packed


def unpack(data: bytes, limit: int) -> Any:
    """Returns the value of a message; its arrays are writable, aligned and of native byte order.

    Args:
        data: The message.
        limit: Most bytes of it, and of its arrays together.

    Raises:
        InvalidInputError: It is not MessagePack, is cut off or goes on, or holds an array whose dtype is not a number's
            or whose bytes do not fit its shape.
        LimitExceededError: It is too large.
    """
    if len(data) > limit:
        raise LimitExceededError(f"the message has {len(data)} bytes; at most {limit} are taken")
    try:
        value = msgpack.unpackb(
            data,
            raw=False,
            strict_map_key=True,
            max_str_len=MAX_TEXT,
            max_bin_len=limit,
            max_array_len=MAX_ITEMS,
            max_map_len=MAX_ITEMS,
            max_ext_len=0,
        )
    except Exception as error:  # msgpack raises many kinds, none of which may pass
        raise InvalidInputError(f"the message is not MessagePack: {str(error)[:200] or type(error).__name__}") from None
    return _Reader().read(value, "", 0)


def _told(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.dtype.kind in _KINDS:
        return {_ARRAY: True, b"data": value.tobytes(), b"dtype": value.dtype.str, b"shape": value.shape}
    if isinstance(value, np.generic) and value.dtype.kind in _KINDS:
        return {_SCALAR: True, b"data": value.item(), b"dtype": value.dtype.str}
    raise TypeError(f"a {type(value).__name__} cannot be sent")


class _Reader:
    """Makes arrays of the maps that stand for them; counts, for many small lists are as bad as a long one."""

    def __init__(self) -> None:
        self._items = 0

    def read(self, value: Any, place: str, depth: int) -> Any:
        if not isinstance(value, dict | list):
            if isinstance(value, bytes):
                raise InvalidInputError(f"{place or 'the message'} is bytes; send an array, a number or a text")
            return value
        if isinstance(value, dict):
            if _ARRAY in value:
                return _array(value, place or "the message")
            if _SCALAR in value:
                return _scalar(value, place or "the message")
        self._items += len(value)
        if depth >= MAX_DEPTH or self._items > MAX_ITEMS:
            what = f"the message is nested more than {MAX_DEPTH} deep, or has more than {MAX_ITEMS} items"
            raise LimitExceededError(f"{what}; send arrays as arrays")
        if isinstance(value, list):
            return [self.read(each, f"{place}[{number}]", depth + 1) for number, each in enumerate(value)]
        read = {}
        for key, each in value.items():
            if not isinstance(key, str):
                raise InvalidInputError(f"{place or 'the message'} has a key that is no text")
            read[key] = self.read(each, f"{place}/{key}" if place else key, depth + 1)
        return read


def _dtype(given: Any, place: str) -> np.dtype[Any]:
    try:
        dtype = np.dtype(given) if isinstance(given, str) and len(given) <= 8 else None
    except (TypeError, ValueError):
        dtype = None
    if dtype is None or dtype.kind not in _KINDS or dtype.itemsize > 8 or dtype.shape or dtype.hasobject:
        raise InvalidInputError(f"{place} has dtype {str(given)[:40]!r}; send bool, integers or floats", field=place)
    return dtype


def _array(told: Mapping[Any, Any], place: str) -> np.ndarray[Any, np.dtype[Any]]:
    dtype, shape, data = _dtype(told.get(b"dtype"), place), told.get(b"shape"), told.get(b"data")
    if (
        not isinstance(shape, list | tuple)
        or len(shape) > MAX_RANK
        or not all(type(s) is int and s >= 0 for s in shape)
    ):
        raise InvalidInputError(f"{place} has shape {str(shape)[:80]}; send at most {MAX_RANK} sides", field=place)
    if not isinstance(data, bytes) or math.prod(shape) * dtype.itemsize != len(data) or max(shape, default=0) > 2**31:
        got = len(data) if isinstance(data, bytes) else type(data).__name__
        what = f"{place} of shape {list(shape)} and dtype {dtype} needs {math.prod(shape) * dtype.itemsize} bytes"
        raise InvalidInputError(f"{what}, got {got}", field=place)
    if dtype.kind == "b" and data.count(0) + data.count(1) != len(data):
        raise InvalidInputError(f"{place} holds bools that are neither 0 nor 1", field=place)
    return np.frombuffer(data, dtype).reshape(shape).astype(dtype.newbyteorder("="), copy=True)


def _scalar(told: Mapping[Any, Any], place: str) -> np.generic:
    dtype, data = _dtype(told.get(b"dtype"), place), told.get(b"data")
    if not isinstance(data, bool | int | float):
        raise InvalidInputError(f"{place} is a scalar of {type(data).__name__}; send a number", field=place)
    try:
        scalar: np.generic = dtype.newbyteorder("=").type(data)
    except (OverflowError, ValueError) as error:
        raise InvalidInputError(f"{place} does not fit {dtype}: {error}", field=place) from None
    return scalar
