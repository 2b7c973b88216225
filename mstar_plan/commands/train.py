"""`mstar-plan train`: the weights of one task, from nothing."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from mstar_plan.config import load
from mstar_plan.training import recipe
from mstar_plan.training.flow_policy import recipe as flow_recipe
from mstar_plan.training.vjepa2 import recipe as vjepa2_recipe


def train(words: Sequence[str]) -> None:
    """Collects episodes, trains, measures and saves; `env` chooses the file in `conf/train/`, and the kind of model."""
    env = _env_of(words)
    if env.startswith(flow_recipe.PREFIX):
        made = load(f"train/{env}", words, flow_recipe.FlowTrainConfig)
        weights = flow_recipe.train(made, say=typer.echo)
        typer.echo(
            f"weights are in {weights}; try them: "
            f"mstar-plan evaluate env={made.task} controller=rerank policy.weights={weights}"
        )
        return
    if env.startswith(vjepa2_recipe.PREFIX):
        config = load(f"train/{env}", words, vjepa2_recipe.VJEPA2TrainConfig)
        weights = vjepa2_recipe.train(config, say=typer.echo)
    else:
        weights = recipe.train(load(f"train/{env}", words, recipe.TrainConfig))
    typer.echo(f"weights are in {weights}; try them: mstar-plan evaluate env={env} weights={weights}")


def _env_of(words: Sequence[str]) -> str:
    named = [word.removeprefix("env=") for word in words if word.startswith("env=")]
    return named[-1] if named and "/" not in named[-1] else recipe.TrainConfig().env
