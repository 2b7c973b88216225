"""`mstar-plan models`: the models that can be served, what they take and ask for, and how good they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from mstar_plan.families.catalogue import families
from mstar_plan.models.registry import ModelCard, list_models

# Terms of a contract that are worth a line; `GetServerInfo` and `ListModels` serve all of them.
SHOWN = (
    "frame_hz",
    "frame_order",
    "frame_copies",
    "pixel_mean",
    "pixel_std",
    "normalize_latents",
    "action_frame",
    "action_units",
    "gripper_sign",
    "state",
)


def models() -> None:
    """Prints a table of world models, what they need of a robot, and a table of families."""
    table = Table(show_edge=False, pad_edge=False)
    for column in ("model", "image", "latent", "action", "size", "measured", "description"):
        table.add_column(column, overflow="fold")
    cards = list_models()
    for card in cards:
        table.add_row(card.name, *_inputs(card), _size(card.file_bytes), _measured(card.evaluation), card.description)
    console = Console()
    console.print(table)
    for card in cards:
        if card.inputs is not None and card.inputs.contract:
            console.print(
                f"\n{card.name} needs: {_contract(card.inputs.contract)}", markup=False, highlight=False, soft_wrap=True
            )
    console.print()
    console.print(_families())


def _families() -> Table:
    """Families by name; a family is not loaded for it."""
    table = Table(show_edge=False, pad_edge=False)
    for column in ("family", "needs", "description"):
        table.add_column(column, overflow="fold")
    for name, entry in families().items():
        table.add_row(name, f"mstar-plan[{entry.needs}]".replace("[", "\\[") if entry.needs else "-", entry.description)
    return table


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


def _contract(terms: Mapping[str, str]) -> str:
    """The terms that the table does not show, in one line."""
    return "; ".join(f"{name} {terms[name]}" for name in SHOWN if terms.get(name))


def _size(file_bytes: int) -> str:
    return f"{file_bytes / 1e6:.1f} MB" if file_bytes else "-"


def _measured(evaluation: Mapping[str, Any]) -> str:
    """The held-out figures of each member: rollout error after the last step, effective rank of the latents."""
    members = evaluation.get("held_out", [])
    rows = [f"error {m['rollout_error'][-1]:.3g}, rank {m['effective_rank']:.1f}" for m in members]
    return "\n".join(rows) or "-"
