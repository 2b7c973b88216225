"""`mstar-plan train`: the weights of one task, from nothing."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from mstar_plan.config import load
from mstar_plan.training import recipe


def train(words: Sequence[str]) -> None:
    """Collects episodes, trains, measures and saves; `env` chooses the file in `conf/train/`."""
    weights = recipe.train(load(f"train/{_env_of(words)}", words, recipe.TrainConfig))
    typer.echo(f"weights are in {weights}; try them: mstar-plan evaluate env={weights.stem} weights={weights}")


def _env_of(words: Sequence[str]) -> str:
    named = [word.removeprefix("env=") for word in words if word.startswith("env=")]
    return named[-1] if named and "/" not in named[-1] else recipe.TrainConfig().env
