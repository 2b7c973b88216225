"""`mstar-plan models`: the models that can be served, what they take, and how good they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from mstar_plan.models.registry import ModelCard, list_models


def models() -> None:
    """Prints a table of model cards."""
    table = Table(show_edge=False, pad_edge=False)
    for column in ("model", "image", "latent", "action", "size", "measured", "description"):
        table.add_column(column, overflow="fold")
    for card in list_models():
        table.add_row(card.name, *_inputs(card), _size(card.file_bytes), _measured(card.evaluation), card.description)
    Console().print(table)


def _inputs(card: ModelCard) -> tuple[str, str, str]:
    spec = card.inputs
    if spec is None:
        return "-", "-", "-"
    tokens, width = spec.latent_shape
    return (
        f"{spec.image_size[0]} x {spec.image_size[1]}",
        f"{tokens} x {width}",
        f"{', '.join(spec.action.names)} every {spec.action.dt_s:g} s",
    )


def _size(file_bytes: int) -> str:
    return f"{file_bytes / 1e6:.1f} MB" if file_bytes else "-"


def _measured(evaluation: Mapping[str, Any]) -> str:
    """The held-out figures of each member: rollout error after the last step, effective rank of the latents."""
    members = evaluation.get("held_out", [])
    rows = [f"error {m['rollout_error'][-1]:.3g}, rank {m['effective_rank']:.1f}" for m in members]
    return "\n".join(rows) or "-"
