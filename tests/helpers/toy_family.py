"""What a toy family is: a graph of one walk, requests to it, and a check of the answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mstar_plan.walks.graph import Graph
from mstar_plan.walks.walk import Walk

Values = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Family:
    """A toy model: a graph of one walk, requests to it, and a check of what they must give."""

    name: str
    graph: Graph
    requests: Sequence[Values]
    check: Callable[[Values, Values], None]

    @property
    def walk(self) -> Walk:
        return self.graph.walks[self.name]


def close(got: Tensor, want: Any, tolerance: float = 1e-9) -> None:
    torch.testing.assert_close(got, torch.as_tensor(want, dtype=got.dtype), rtol=tolerance, atol=tolerance)


def family(walk: Walk, components: dict[str, Any], requests: Sequence[Values], check: Any) -> Family:
    return Family(walk.name, Graph("toy", components, {walk.name: walk}), requests, check)


def noise(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
