"""Engine: runs calls of a component, joined into one batch where they fit; a failure stays with its own call."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Sequence

from mstar_plan.errors import ComponentError, MStarError
from mstar_plan.runtime.failure import as_error
from mstar_plan.walks.batch import Batch, split_outputs
from mstar_plan.walks.component import Batching, Component, Outputs

Answer = Outputs | MStarError

_log = logging.getLogger(__name__)


def join_key(component: Component, batch: Batch) -> Hashable | None:
    """Calls of one component with equal keys may be joined; None never joins."""
    batching = getattr(component, "batching", Batching.EQUAL)
    if batching is Batching.RAGGED:
        return "ragged"
    if batching is Batching.ALONE:
        return None
    key = batch.join_key()
    try:
        hash(key)
    except TypeError:  # a static that cannot be compared cannot be shared
        return None
    return key


class Engine:
    """Runs the waiting calls of components, in the caller's thread. It keeps nothing between calls."""

    def run(self, name: str, component: Component, batches: Sequence[Batch]) -> list[Answer]:
        """Runs calls of equal `join_key` as one; if that fails, each by itself, so that no call pays for another.

        Args:
            name: The component's name, for errors.
            component: The component.
            batches: What each call reads; at least one.

        Returns:
            For each call, in order: its outputs, or the error that it ended with.
        """
        if len(batches) == 1:
            return [_alone(name, component, batches[0])]
        try:
            return list(_joined(component, batches))
        except BaseException as raised:  # see `_alone`
            _log.warning("component %r failed on %d joined calls (%r); each runs alone now", name, len(batches), raised)
        return [_alone(name, component, batch) for batch in batches]


def _alone(name: str, component: Component, batch: Batch) -> Answer:
    try:
        return component(batch)
    except BaseException as raised:  # all of them: in a worker's thread nobody else could tell the caller
        return as_error(f"component {name!r}", raised)


def _joined(component: Component, batches: Sequence[Batch]) -> Sequence[Answer]:
    sizes = [batch.size for batch in batches]
    if getattr(component, "batching", Batching.EQUAL) is Batching.RAGGED:
        answers: Sequence[Answer] = component.run(batches)  # type: ignore[attr-defined]
        if len(answers) != len(batches):
            raise ComponentError(f"ragged component gave {len(answers)} answers to {len(batches)} calls")
        return answers
    return split_outputs(component(Batch.join(batches)), sizes)
