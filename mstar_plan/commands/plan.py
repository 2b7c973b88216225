"""`mstar-plan plan NOW GOAL`: one plan from two pictures, as a table and as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from PIL import Image
from rich.console import Console
from rich.table import Table

from mstar_plan.build import PlanningConfig, Task, build_planning
from mstar_plan.commands.output import write_text
from mstar_plan.config import Section, load
from mstar_plan.errors import InvalidInputError
from mstar_plan.types import ActionSpec, Goal, ImageArray, Observation, Plan, PlanRequest


@dataclass(frozen=True, kw_only=True)
class PlanConfig(PlanningConfig):
    """What to plan.

    Attributes:
        model: File in `conf/task/`: a model, and what its planner is tuned to.
        seed: Seed of the search noise.
        soft_time_s: Seconds after which the best plan so far is taken; null for no limit.
        deterministic: The same bytes on every run, at some cost in speed.
        state: The robot's state now, for models that need it (V-JEPA 2-AC: its pose, 7 numbers).
        resize: Scale pictures of another size; they are refused otherwise.
        out: JSON file to write; `-` prints JSON alone.
    """

    model: Annotated[Task, Section("task")]
    seed: int = 0
    soft_time_s: float | None = None
    deterministic: bool = False
    state: tuple[float, ...] = ()
    resize: bool = False
    out: Path = Path("plan.json")


def plan(observation: Path, goal: Path, words: Sequence[str]) -> None:
    """Plans from the picture `observation` to the picture `goal`.

    Raises:
        InvalidInputError: A file is no picture, or of another size than the model's.
    """
    config = load("plan", words, PlanConfig)
    name = config.model.name
    with build_planning({name: (config.model, config)}) as planning:
        solver = planning.solvers[name]
        size = solver.spec.image_size if config.resize else None
        request = PlanRequest(
            observation=Observation(
                read_picture(observation, size)[None], np.array(config.state, np.float32) if config.state else None
            ),
            goal=Goal(frame=read_picture(goal, size)),
            seed=config.seed,
            soft_time_s=config.soft_time_s,
            deterministic=config.deterministic,
        )
        found = solver.solve(request)
    text = json.dumps(plan_json(found, name, solver.spec.action), indent=2)
    if str(config.out) == "-":
        typer.echo(text)
        return
    write_text(config.out, text + "\n")
    console = Console()
    console.print(plan_table(found, solver.spec.action))
    console.print(summary(found), markup=False, highlight=False)
    console.print(f"written to {config.out}", markup=False, highlight=False)


def read_picture(path: Path, size: tuple[int, int] | None = None) -> ImageArray:
    """Reads a picture file as [H_px, W_px, 3] uint8 RGB.

    Args:
        path: PNG, JPEG or another format that Pillow reads.
        size: (H_px, W_px) to scale it to; None leaves it as it is.

    Raises:
        InvalidInputError: There is no such file, or it is no picture.
    """
    try:
        with Image.open(path) as picture:
            rgb = picture.convert("RGB")
    except (OSError, Image.DecompressionBombError) as error:
        raise InvalidInputError(f"{path} cannot be read as a picture: {error}", field="observation") from error
    if size is not None:
        rgb = rgb.resize((size[1], size[0]), Image.Resampling.BICUBIC)
    return np.asarray(rgb)


def plan_json(found: Plan, model: str, action: ActionSpec) -> dict[str, Any]:
    """Returns a plan as JSON values; a cost that was not scored is null."""
    return {
        "model": model,
        "status": found.status.value,
        "message": found.message,
        "cost": found.cost if math.isfinite(found.cost) else None,
        "cost_history": list(found.cost_history),
        "iterations": found.iterations,
        "samples": found.samples,
        "seed": found.seed,
        "dt_s": found.dt_s,
        "action_names": list(action.names),
        "action_units": list(action.units),
        "actions": found.actions.tolist(),
        "std": None if found.std is None else found.std.tolist(),
        "timing": asdict(found.timing),
    }


def plan_table(found: Plan, action: ActionSpec) -> Table:
    """Returns the actions of a plan, one row a step, with the spread that the search ended with."""
    table = Table(show_edge=False, pad_edge=False)
    table.add_column("t", justify="right")
    for name, unit in zip(action.names, action.units, strict=True):
        table.add_column(f"{name} [{unit}]".replace("[", r"\["), justify="right")
    for step, row in enumerate(found.actions):
        spread = found.std[step] if found.std is not None else None
        cells = [f"{value:+.3f}" + (f" ± {spread[i]:.3f}" if spread is not None else "") for i, value in enumerate(row)]
        table.add_row(f"{step * found.dt_s:.1f} s", *cells)
    return table


def summary(found: Plan) -> str:
    """Returns a plan in one line: how it ended, what it costs, how long it took."""
    course = " -> ".join(f"{cost:.4g}" for cost in found.cost_history)
    why = f" ({found.message})" if found.message else ""
    return (
        f"{found.status.value}{why}, cost {found.cost:.4g} after {found.iterations} iterations of {found.samples} "
        f"samples ({course}), {found.timing.total_ms:.1f} ms"
    )
