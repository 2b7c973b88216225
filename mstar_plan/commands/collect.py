"""`mstar-plan collect`: training episodes of a task."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from mstar_plan.config import load
from mstar_plan.training import collection


def collect(words: Sequence[str]) -> None:
    """Collects what is not there yet."""
    folder = collection.collect(load("collect", words, collection.CollectConfig))
    typer.echo(f"episodes are in {folder}")
