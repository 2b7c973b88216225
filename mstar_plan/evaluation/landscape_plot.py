"""The energy landscape as a picture: a heat map over two dimensions of the action."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from mstar_plan.types import FloatArray


def draw_landscape(
    path: Path,
    values: FloatArray,
    energies: FloatArray,
    labels: Sequence[str],
    *,
    title: str = "",
    planned: Sequence[float] | None = None,
) -> None:
    """Writes the picture; its format follows from the file's name.

    Args:
        path: File to write; its folder is there.
        values: [2, P] actions along both axes.
        energies: [P, P], the first axis is drawn to the right, the second upwards.
        labels: What stands at the two axes.
        title: Stands above.
        planned: A planned action on the two axes, to be marked.

    Raises:
        ValueError: matplotlib knows no such format.
    """
    figure = Figure(figsize=(6.4, 5.2), layout="constrained")
    axes = figure.subplots()
    mesh = axes.pcolormesh(values[0], values[1], energies.T, shading="nearest", cmap="viridis")
    figure.colorbar(mesh, ax=axes, label="energy")
    x, y = np.unravel_index(int(np.argmin(energies)), energies.shape)
    axes.scatter(
        values[0, x], values[1, y], s=120, color="white", marker="o", edgecolors="black", label="lowest energy"
    )
    if planned is not None:
        axes.scatter(planned[0], planned[1], s=120, color="red", marker="X", edgecolors="black", label="planned action")
    axes.set(xlabel=labels[0], ylabel=labels[1], title=title)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=2, frameon=False)
    figure.savefig(path, dpi=130)
