"""Training curves as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

LOSSES = ("loss", "rollout", "inverse", "variance", "covariance", "sigreg", "slowness")


def draw_curves(rows: Sequence[Mapping[str, float]], path: Path, title: str) -> None:
    """Writes a PNG with one panel a group of columns over the seconds of training.

    Args:
        rows: The trainer's, one at least; columns that they lack are left out.
        path: File to write; its folder is made.
        title: Stands above the panels.
    """
    errors = tuple(column for column in rows[0] if column.startswith("error_"))
    panels = (
        ("losses", LOSSES, "log"),
        ("held-out rollout error (share of variance)", errors, "log"),
        ("effective rank", ("effective_rank",), "linear"),
        ("R2 of a linear probe of the task position", ("probe_r2",), "linear"),
    )
    figure = Figure(figsize=(11, 7), layout="constrained")
    figure.suptitle(title)
    for axes, (heading, columns, scale) in zip(figure.subplots(2, 2).flat, panels, strict=True):
        for column in columns:
            if column in rows[0]:
                axes.plot([row["seconds"] for row in rows], [row[column] for row in rows], label=column)
        axes.set(title=heading, xlabel="seconds", yscale=scale)
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
