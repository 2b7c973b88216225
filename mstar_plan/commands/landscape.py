"""`mstar-plan landscape NOW GOAL`: how far from the goal each action leads, as a picture and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from mstar_plan.build import PlanningConfig, Task, build_planning
from mstar_plan.commands.output import make_folder, write_text
from mstar_plan.commands.plan import read_picture
from mstar_plan.config import Section, load
from mstar_plan.errors import ConfigError, did_you_mean
from mstar_plan.evaluation.landscape_plot import draw_landscape
from mstar_plan.models.world_model import ModelSpec
from mstar_plan.rollout.landscape import Grid, action_grid, survey
from mstar_plan.rollout.solver import PlanSolver
from mstar_plan.types import ActionSpec, FloatArray, Goal, ImageArray, Observation, PlanRequest


@dataclass(frozen=True, kw_only=True)
class LandscapeConfig(PlanningConfig):
    """What to survey.

    Attributes:
        model: File in `conf/task/`: a model, and what its planner and objective are tuned to.
        axes: Two dimensions of the action that are drawn, by number or name; all others are 0.
        over: Further dimensions that vary; the smallest energy over them is drawn.
        points: Actions along each of these dimensions.
        repeat: Steps that an action is held.
        span: Share of the action's bounds that the grid covers, 0 < span <= 1.
        plan: Plan as well, and mark the first action of the plan.
        seed: Seed of that search.
        state: Proprioception now, for models that need it.
        deterministic: The same bytes on every run, at some cost in speed.
        resize: Scale pictures of another size; they are refused otherwise.
        out: Picture to write, with a JSON file beside it; a name in .json writes that alone, `-` prints it.
    """

    model: Annotated[Task, Section("task")]
    axes: tuple[int | str, ...] = (0, 1)
    over: tuple[int | str, ...] = ()
    points: int = 15
    repeat: int = 1
    span: float = 1.0
    plan: bool = False
    seed: int = 0
    state: tuple[float, ...] | None = None
    deterministic: bool = False
    resize: bool = False
    out: Path = Path("landscape.png")

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.axes) != 2:
            raise ConfigError(f"axes is {list(self.axes)}; a picture has two", field="axes")
        if not self.out.suffix and str(self.out) != "-":
            raise ConfigError(f"out is {self.out}; it needs a name that ends in .png, .svg, .pdf or .json", field="out")


def landscape(observation: Path, goal: Path, words: Sequence[str]) -> None:
    """Surveys the actions that lead from the picture `observation` towards the picture `goal`.

    Raises:
        InvalidInputError: A file is no picture, or of another size than the model's; an axis is none of the action's.
        LimitExceededError: The grid has more actions than one request may ask for.
    """
    config = load("landscape", words, LandscapeConfig)
    name = config.model.name
    with build_planning({name: (config.model, config)}) as planning:
        solver = planning.solvers[name]
        spec = solver.spec
        size = spec.image_size if config.resize else None
        request = still_request(spec, read_picture(observation, size), read_picture(goal, size), config)
        axes = [axis_number(each, spec.action) for each in (*config.axes, *config.over)]
        grid = action_grid(spec.action, axes, config.points, config.span, most=solver.limits.max_samples)
        energies = survey(solver, request, grid.actions, config.repeat)
        planned = solver.solve(request).actions[0] if config.plan else None
    found = landscape_json(name, solver, grid, energies, planned=planned, config=config)
    if str(config.out) == "-":
        typer.echo(json.dumps(found, indent=2))
        return
    if config.out.suffix != ".json":
        draw(config, solver, grid, energies, planned)
    write_text(config.out.with_suffix(".json"), json.dumps(found, indent=2) + "\n")
    lowest = ", ".join(f"{n} {v:+.4g}" for n, v in zip(found["axes"], found["lowest"]["action"], strict=True))
    typer.echo(f"lowest energy {found['lowest']['energy']:.4g} at {lowest}; highest {found['highest']:.4g}")
    typer.echo(f"written to {config.out}")


def still_request(spec: ModelSpec, now: ImageArray, goal: ImageArray, config: LandscapeConfig) -> PlanRequest:
    """A request of a robot that has kept still: models of several frames see the picture as often as they need."""
    centre = np.asarray((spec.action.low + spec.action.high) / 2, np.float32)
    actions = np.repeat(centre[None], spec.context_frames - 1, 0) if spec.context_frames > 1 else None
    return PlanRequest(
        observation=Observation(
            np.repeat(now[None], spec.context_frames, 0),
            state=None if config.state is None else np.array(config.state, np.float32),
        ),
        goal=Goal(frame=goal),
        seed=config.seed,
        deterministic=config.deterministic,
        context_actions=actions,
    )


def axis_number(axis: int | str, action: ActionSpec) -> int:
    """The number of a dimension of the action that is given by number or name.

    Raises:
        ConfigError: There is no such name.
    """
    if isinstance(axis, int):
        return axis
    if axis not in action.names:
        raise ConfigError(f"axes names {axis!r}{did_you_mean(axis, action.names)}", field="axes")
    return action.names.index(axis)


def lowest_over(grid: Grid, energies: FloatArray) -> FloatArray:
    """Energies [P, P] over the first two axes: the smallest over all others."""
    folded = grid.fold(energies)
    return np.asarray(folded.min(tuple(range(2, folded.ndim))) if folded.ndim > 2 else folded)


def landscape_json(
    name: str,
    solver: PlanSolver,
    grid: Grid,
    energies: FloatArray,
    *,
    planned: FloatArray | None,
    config: LandscapeConfig,
) -> dict[str, Any]:
    """Returns the numbers behind the picture; energies are nested in the order of `axes`."""
    action, axes, best = solver.spec.action, list(grid.axes), int(np.argmin(energies))
    return {
        "model": name,
        "distance": config.objective.distance,
        "repeat": config.repeat,
        "axes": [action.names[axis] for axis in axes],
        "units": [action.units[axis] for axis in axes],
        "values": grid.values.tolist(),
        "energies": grid.fold(energies).tolist(),
        "lowest": {"action": grid.actions[best, axes].tolist(), "energy": float(energies[best])},
        "highest": float(energies.max()),
        "planned": None if planned is None else planned.tolist(),
    }


def draw(
    config: LandscapeConfig, solver: PlanSolver, grid: Grid, energies: FloatArray, planned: FloatArray | None
) -> None:
    """Writes the picture.

    Raises:
        ConfigError: It cannot be written, or its name asks for a format that is not known.
    """
    action, drawn = solver.spec.action, list(grid.axes[:2])
    labels = [f"{action.names[axis]} [{action.units[axis]}]" for axis in drawn]
    steps = f"after {config.repeat} step" + "s" * (config.repeat > 1)
    make_folder(config.out.parent)
    try:
        draw_landscape(
            config.out,
            grid.values[:2],
            lowest_over(grid, energies),
            labels,
            title=f"{config.model.name}: {config.objective.distance} distance to the goal {steps}",
            planned=None if planned is None else planned[drawn].tolist(),
        )
    except (OSError, ValueError) as error:
        raise ConfigError(f"out is {config.out}, which cannot be written: {error}", field="out") from error
