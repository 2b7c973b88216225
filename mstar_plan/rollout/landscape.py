"""The energy landscape: how far from the goal a model expects to be after each action of a grid.

Shapes: K actions of a grid, A action, P points along each of its axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mstar_plan.errors import ComponentError, InvalidInputError
from mstar_plan.rollout.constraints import worst_violation
from mstar_plan.rollout.limits import PlanDefaults, effort
from mstar_plan.rollout.plan_values import batch_of_one, context_values, goal_values
from mstar_plan.rollout.plan_walk import landscape_name
from mstar_plan.rollout.solver import PlanSolver
from mstar_plan.types import ActionSpec, FloatArray, PlanRequest, finite_array


@dataclass(frozen=True, eq=False)
class Grid:
    """Actions on a regular grid over some axes; all other axes are 0.

    Attributes:
        axes: Indices of the action's dimensions that vary; the last one varies fastest.
        values: [len(axes), P] values along each axis, in the action's units.
        actions: [P ** len(axes), A].
    """

    axes: tuple[int, ...]
    values: FloatArray
    actions: FloatArray

    def fold(self, energies: npt.ArrayLike) -> FloatArray:
        """Energies [K] as an array with one axis of length P for each of the grid's."""
        return np.asarray(energies, np.float32).reshape((self.values.shape[1],) * len(self.axes))


def action_grid(action: ActionSpec, axes: Sequence[int], points: int, span: float = 1.0, *, most: int = 4096) -> Grid:
    """The grid of `points` actions along each axis, over the middle `span` of the bounds.

    Args:
        action: Bounds, in whose units the grid is.
        axes: Dimensions that vary.
        points: P, at least 2.
        span: Share of the bounds that is covered, 0 < span <= 1.
        most: Actions that the grid may have.

    Raises:
        InvalidInputError: An axis is none of the action's or is named twice, or the grid is empty or too large.
    """
    if not axes or len(set(axes)) < len(axes) or not all(0 <= axis < action.size for axis in axes):
        raise InvalidInputError(f"axes are {list(axes)}; name each of 0..{action.size - 1} once at most", field="axes")
    if not 0 < span <= 1:
        raise InvalidInputError(f"span is {span}; it needs 0 < span <= 1", field="span")
    if points < 2 or points ** len(axes) > most:
        raise InvalidInputError(
            f"points is {points}: {len(axes)} axes make {max(0, points) ** len(axes)} actions; it needs at least 2 "
            f"points and at most {most} actions",
            field="points",
        )
    middle, half = (action.high + action.low) / 2, span * (action.high - action.low) / 2
    values = np.stack([np.linspace(middle[a] - half[a], middle[a] + half[a], points) for a in axes]).astype(np.float32)
    actions = np.zeros((points ** len(axes), action.size), np.float32)
    actions[:, list(axes)] = np.stack(np.meshgrid(*values, indexing="ij"), -1).reshape(-1, len(axes))
    return Grid(tuple(axes), values, actions)


def survey(solver: PlanSolver, request: PlanRequest, actions: npt.ArrayLike, repeat: int = 1) -> FloatArray:
    """Energies [K] of actions [K, A]: the objective's distance to the goal after each was taken `repeat` times.

    Args:
        solver: Of the model.
        request: Observation, context and goal; what it says of the search is not used.
        actions: In the action's units.
        repeat: Steps, at least 1.

    Raises:
        InvalidInputError: The request does not fit the model, or an action is outside the bounds.
        LimitExceededError: There are too many actions or steps.
        ComponentError: The model gave an energy that is not finite.
    """
    spec = solver.spec
    grid = finite_array(actions, "actions", ndim=2)
    if grid.shape[1] != spec.action.size or not len(grid):
        raise InvalidInputError(
            f"actions has shape {grid.shape}; model {spec.name!r} needs [K, {spec.action.size}]", field="actions"
        )
    wrong = worst_violation(grid, spec.action, rate=False)
    if wrong:
        raise InvalidInputError(f"actions: {wrong}", field="actions")
    if repeat < 1:
        raise InvalidInputError(f"repeat is {repeat}; it needs at least 1", field="repeat")
    asked = PlanRequest(request.observation, request.goal, horizon=repeat, samples=len(grid), iterations=1)
    sizes = effort(asked, PlanDefaults(repeat, 1, len(grid)), solver.limits, spec)
    goal = goal_values(request.goal, spec)
    values = {
        **context_values(request, spec),
        **goal,
        "grid": batch_of_one(grid),
        "repeat": repeat,
        "tile": solver.tile(sizes, request.deterministic) or len(grid),
    }
    found = solver.runtime.submit(
        landscape_name(next(iter(goal))),
        values,
        graph=solver.graph,
        session=request.session,
        deterministic=request.deterministic,
        here=True,
    )
    energies: FloatArray = found.result().outputs["costs"][0, : len(grid)].float().numpy(force=True).copy()
    failed = np.count_nonzero(~np.isfinite(energies))
    if failed:
        raise ComponentError(
            f"model {spec.name!r} gave {failed} of {len(grid)} actions no finite energy; check weights and image",
            details={"cause": "NON_FINITE_COST"},
        )
    return energies
