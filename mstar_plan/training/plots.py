"""Training curves as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

PANELS: Sequence[tuple[str, tuple[str, ...], bool]] = (
    ("losses", ("loss", "rollout", "inverse", "variance", "covariance", "sigreg", "slowness"), True),
    ("held-out rollout error (share of variance)", ("error_1", "error_6", "error_10", "error_mean"), True),
    ("effective rank", ("effective_rank",), False),
    ("R2 of a linear probe of the task position", ("probe_r2",), False),
)


def draw_curves(rows: Sequence[Mapping[str, float]], path: Path, title: str) -> None:
    """Writes a PNG with one panel a group of columns, over the seconds of training; absent columns are left out."""
    figure = Figure(figsize=(11, 7), layout="constrained")
    figure.suptitle(title)
    seconds = [row["seconds"] for row in rows]
    for axes, (heading, columns, logarithmic) in zip(figure.subplots(2, 2).flat, PANELS, strict=True):
        for column in columns:
            if rows and column in rows[0]:
                axes.plot(seconds, [row[column] for row in rows], label=column)
        axes.set(title=heading, xlabel="seconds")
        if logarithmic:
            axes.set_yscale("log")
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
