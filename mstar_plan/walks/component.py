"""What models and runtime must both know: values, components, how a component batches, and compute policies.

A value on a wire is one of three:

- a tensor [B, ...], B leading, which joins with others of equal shape, dtype and device;
- a `Joinable` object (a cache, say), which knows itself how to join and split;
- a static: any hashable (int, str, bool, None, a frozen dataclass), which joins only with its equal.

Any of them may be `Owned` as well: then it is released with its request.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Protocol, Self, runtime_checkable

from torch import Tensor

from mstar_plan.errors import MStarError
from mstar_plan.walks.batch import Batch

Outputs = Mapping[str, Any]

_log = logging.getLogger(__name__)


@runtime_checkable
class Joinable(Protocol):
    """A value that is not a tensor, but can share a batch."""

    def join_key(self) -> Hashable:
        """Only values with equal keys may be joined."""
        ...

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """Joins the values of several requests along B."""
        ...

    def split(self, sizes: Sequence[int]) -> Sequence[Self]:
        """The inverse of `join`: parts of `sizes` rows."""
        ...


@runtime_checkable
class Owned(Protocol):
    """A value that holds something for its request alone: a place in a pool, say. A walk does not give it out."""

    def release(self) -> None:
        """Gives it back: called when the request has ended, however it ended, maybe more than once, from any thread."""
        ...


def release(values: Iterable[Any]) -> None:
    """Releases those among the values that are `Owned`; one that fails is told to the log, and keeps no other."""
    for value in values:
        if not isinstance(value, Tensor) and hasattr(value, "release"):
            try:
                value.release()
            except Exception:  # whoever ends a request must not break by it
                _log.exception("a %s was not released", type(value).__name__)


class Batching(enum.Enum):
    """How the calls of several requests to one component may be joined."""

    EQUAL = "equal"  # along B where every value fits: the default
    RAGGED = "ragged"  # handed over as a list; the component joins them itself
    ALONE = "alone"  # never


class Component(Protocol):
    """One named part of a model. Port names are the component's own; a Node ties them to wires."""

    def __call__(self, batch: Batch) -> Outputs:
        """Maps input ports to output ports; every tensor leads with B."""
        ...


class RaggedComponent(Protocol):
    """A component that takes requests of different shapes in one call; it says so with `batching = Batching.RAGGED`."""

    batching: Batching

    def __call__(self, batch: Batch) -> Outputs:
        """Runs one request alone."""
        ...

    def run(self, batches: Sequence[Batch]) -> Sequence[Outputs | MStarError]:
        """Runs several; gives one answer for each, in order: its outputs, or the error that it alone ends with.

        If it raises, each is run alone: so it raises only before it has changed anything.
        """
        ...


class FunctionComponent:
    """A plain function of tensors as a component.

    Args:
        function: Called with the values of `inputs` in order; returns one value, or a tuple of `len(outputs)`.
        inputs: Port names that it reads.
        outputs: Port names that it writes.
        batching: How its calls may be joined.
    """

    __slots__ = ("batching", "function", "inputs", "outputs")

    def __init__(
        self,
        function: Callable[..., Any],
        inputs: tuple[str, ...],
        outputs: tuple[str, ...],
        batching: Batching = Batching.EQUAL,
    ) -> None:
        self.function, self.inputs, self.outputs, self.batching = function, inputs, outputs, batching

    def __call__(self, batch: Batch) -> Outputs:
        """Runs the function on the batch's ports."""
        values = batch.values
        result = self.function(*[values[name] for name in self.inputs])
        if len(self.outputs) == 1:
            return {self.outputs[0]: result}
        return dict(zip(self.outputs, result, strict=True))


class LoopPolicy(Protocol):
    """A compute policy's memory for one loop of one request."""

    def before(self, iteration: int, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Values to lay over the wires for this iteration (a skip mask, say); empty changes nothing."""
        ...

    def after(self, iteration: int, values: Mapping[str, Any]) -> bool:
        """True ends the loop after this iteration."""
        ...


class ComputePolicy(Protocol):
    """Decides how much work the iterations of a Loop are worth. None at all means off: bit-equal to no policy."""

    def start(self, loop: str, values: Mapping[str, Any]) -> LoopPolicy | None:
        """A fresh memory for the loop of this name, or None to leave the loop alone."""
        ...
