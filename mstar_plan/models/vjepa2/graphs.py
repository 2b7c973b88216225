"""CUDA graphs for a fixed-shape computation: launched as one where the same buffers come again, eager elsewhere.

A planner rolls out from the same cache in every iteration, so that from the second on nothing is new but the numbers. A
graph holds addresses; its key therefore holds those of the buffers that it reads and writes besides its input.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor

Function = Callable[[Tensor], Tensor]
MOST_GRAPHS = 256

_log = logging.getLogger(__name__)


class GraphCache:
    """Runs functions of one tensor, from the second call of a key on as a graph.

    Args:
        capture: Makes a function that replays `function` for inputs like the given one. None: always eager.
        most: Graphs that are kept; the one that was not used for longest is dropped first.
    """

    def __init__(self, capture: Callable[[Function, Tensor], Function] | None, most: int = MOST_GRAPHS) -> None:
        self._capture, self._most = capture, most
        self._known: OrderedDict[Hashable, Function | None] = OrderedDict()

    @classmethod
    def on(cls, device: torch.device) -> GraphCache:
        """Captures on CUDA devices, and is eager on others."""
        return cls(CudaCapture() if device.type == "cuda" else None)

    @property
    def eager(self) -> bool:
        """Whether nothing is captured here."""
        return self._capture is None

    def run(self, key: Hashable, function: Function, x: Tensor) -> Tensor:
        """`function(x)`. Equal keys promise equal shapes, and the same buffers behind the function."""
        if self._capture is None:
            return function(x)
        if key not in self._known:  # the first time is eager: it warms up libraries, which may not happen in a capture
            self._remember(key, None)
            return function(x)
        graph = self._known[key]
        if graph is None:
            try:
                graph = self._capture(function, x)
            except RuntimeError as error:
                _log.warning("no CUDA graph of the predictor's step (%s); it stays eager", str(error).splitlines()[0])
                self._capture = None
                return function(x)
        self._remember(key, graph)
        return graph(x)

    def _remember(self, key: Hashable, graph: Function | None) -> None:
        self._known[key] = graph
        self._known.move_to_end(key)
        if len(self._known) > self._most:
            self._known.popitem(last=False)


class CudaCapture:
    """Captures functions into CUDA graphs that share one pool of memory for what lies between."""

    def __init__(self) -> None:
        self._pool: Any = None

    def __call__(self, function: Function, x: Tensor) -> Function:
        """Captures `function` for inputs like x; the result must be used before any graph of this pool runs again."""
        given = x.clone()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            result = function(given)
        self._pool = graph.pool()

        def replay(new: Tensor) -> Tensor:
            given.copy_(new)
            graph.replay()
            return result

        return replay
