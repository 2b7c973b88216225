"""Batch: the values that one component call reads, of one request or of several joined along B."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from mstar_plan.errors import ComponentError


class Batch:
    """Values by port name; `size` is B. A lone request's batch is its own values: no copy, no concatenation."""

    __slots__ = ("size", "values")

    def __init__(self, values: dict[str, Any], size: int) -> None:
        self.values, self.size = values, size

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def __contains__(self, name: object) -> bool:
        return name in self.values

    def join_key(self) -> Hashable:
        """Batches with equal keys may be joined."""
        return tuple([(name, _value_key(value)) for name, value in self.values.items()])

    @staticmethod
    def join(batches: Sequence[Batch]) -> Batch:
        """Joins batches of equal key along B; one alone is returned as it is."""
        first = batches[0]
        if len(batches) == 1:
            return first
        joined = {name: join_values([b.values[name] for b in batches]) for name in first.values}
        return Batch(joined, sum(b.size for b in batches))


def _value_key(value: Any) -> Hashable:
    if isinstance(value, Tensor):
        return (value.shape[1:], value.dtype, value.device)
    if hasattr(value, "join_key"):
        return (type(value), value.join_key())
    return (type(value), value)


def join_values(parts: Sequence[Any]) -> Any:
    """Joins one value of several requests: tensors along B, Joinables by themselves, statics as they are."""
    first = parts[0]
    if isinstance(first, Tensor):
        return torch.cat(list(parts))
    return type(first).join(parts) if hasattr(first, "join_key") else first


def split_outputs(outputs: Mapping[str, Any], sizes: Sequence[int]) -> list[dict[str, Any]]:
    """Splits a component's answer to a joined batch into one answer a request; tensors are split as views."""
    if len(sizes) == 1:
        return [dict(outputs)]
    rows: list[dict[str, Any]] = [{} for _ in sizes]
    for name, value in outputs.items():
        if isinstance(value, Tensor) and (value.ndim == 0 or value.shape[0] != sum(sizes)):
            raise ComponentError(
                f"output {name!r} has shape {tuple(value.shape)} for a batch of {sum(sizes)} rows; lead with the batch "
                "axis"
            )
        for row, part in zip(rows, split_value(value, sizes), strict=True):
            row[name] = part
    return rows


def split_value(value: Any, sizes: Sequence[int]) -> Sequence[Any]:
    """Splits one value: tensors along B as views, Joinables by themselves; a static goes to everyone."""
    if isinstance(value, Tensor):
        return torch.split(value, list(sizes))
    if hasattr(value, "join_key"):
        parts: Sequence[Any] = value.split(sizes)
        return parts
    return [value] * len(sizes)


def gather(items: Sequence[Any], where: str, dim: int = 1, concat: bool = False) -> Any:
    """One value of successive ones: tensors stacked along a new axis (or joined along `dim`), statics in a tuple.

    Raises:
        ComponentError: The tensors' shapes do not fit together, or a value is a Joinable, or the kinds differ.
    """
    if all(isinstance(item, Tensor) for item in items):
        try:
            return torch.cat(list(items), dim) if concat else torch.stack(list(items), dim)
        except (RuntimeError, IndexError) as error:
            shapes = sorted({tuple(item.shape) for item in items})
            raise ComponentError(
                f"{where} got shapes {shapes}, which do not go together along axis {dim}; write equal shapes"
            ) from error
    kinds = sorted({type(item).__name__ for item in items if isinstance(item, Tensor) or hasattr(item, "join_key")})
    if kinds:
        raise ComponentError(f"{where} got {', '.join(kinds)} values; send tensors alone, or statics alone")
    return tuple(items)
