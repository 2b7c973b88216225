"""From nothing to a weight file: collect, train the members side by side, measure, save."""

from __future__ import annotations

import json
import os
import queue
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as ProgressDisplay
from torch import Tensor

from mstar_plan.errors import ConfigError, did_you_mean
from mstar_plan.models.jepa import JepaConfig
from mstar_plan.models.weights import WeightsInfo, action_to_json, add_evaluation, save_weights
from mstar_plan.training.collection import ENVIRONMENTS, CollectConfig, collect
from mstar_plan.training.losses import LossConfig
from mstar_plan.training.member_job import MemberJob, MemberResult, Progress, train_member
from mstar_plan.training.metric_head import HeadConfig
from mstar_plan.training.plots import draw_curves
from mstar_plan.training.processes import CONTEXT, run_jobs
from mstar_plan.training.refinement import RefinementConfig
from mstar_plan.training.shards import action_of
from mstar_plan.training.trainer import TrainerConfig

DESCRIPTIONS: Mapping[str, str] = {
    "reach": "A planar two-link arm, from pixels: bring the tip to where the goal image has it.",
    "wall": "A point that must go round a wall, from pixels.",
    "push": "A disc that pushes a puck to where the goal image has it, from pixels.",
}


@dataclass(frozen=True)
class TrainConfig:
    """How the weights of one task are made.

    Attributes:
        env: reach, wall or push; also the model's name.
        out: Weight file; runs/train/ENV-sSEED/ENV.safetensors by default. Curves and checkpoints go beside it.
        data: Folder of episodes; None collects them (or takes up a collection that was stopped).
        episodes: Episodes to collect.
        steps: Actions an episode.
        seed: Of data, weights and batches; member i uses seed + i for the last two.
        model: Sizes, and the number of members.
        loss: Weights of the first stage's losses.
        trainer: The first stage, on pixels.
        refinement: The second, the predictor on frozen latents.
        head: The third, the distance head; only for models with a head.
    """

    env: str = "reach"
    out: Path | None = None
    data: Path | None = None
    episodes: int = 1200
    steps: int = 40
    seed: int = 0
    model: JepaConfig = field(default_factory=JepaConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    refinement: RefinementConfig = field(default_factory=RefinementConfig)
    head: HeadConfig = field(default_factory=HeadConfig)

    def __post_init__(self) -> None:
        if self.env not in ENVIRONMENTS:
            raise ConfigError(f"env is {self.env!r}{did_you_mean(self.env, ENVIRONMENTS)}", field="env")
        if self.seed < 0:
            raise ConfigError(f"seed is {self.seed}; it needs at least 0", field="seed")
        if self.out is not None and self.out.suffix != ".safetensors":
            raise ConfigError(f"out is {str(self.out)!r}; it needs a name that ends in .safetensors", field="out")
        if self.steps < max(self.trainer.steps, self.refinement.steps):
            raise ConfigError(f"steps is {self.steps}; rollouts in training are longer than that", field="steps")

    @property
    def file(self) -> Path:
        """The weight file."""
        return self.out or Path("runs") / "train" / f"{self.env}-s{self.seed}" / f"{self.env}.safetensors"

    @property
    def collection(self) -> CollectConfig:
        """The episodes to collect where no folder is given."""
        return CollectConfig(env=self.env, episodes=self.episodes, steps=self.steps, seed=self.seed)


def train(config: TrainConfig, evaluate: Callable[[Path], Mapping[str, Any]] | None = None) -> Path:
    """Makes the weight file and returns its path.

    Args:
        config: How.
        evaluate: Measures a weight file in closed loop; what it returns joins the file's evaluation.

    Raises:
        InvalidInputError: Data or checkpoints cannot be used.
        WeightsError: The training ended in values that are not finite.
        UnavailableError: A training process was killed.
    """
    started = time.monotonic()
    data = config.data or collect(config.collection)
    jobs = _jobs(config, data)
    results = _train_members(jobs)
    seconds = round(time.monotonic() - started, 1)
    _write_curves(config, results)
    info = WeightsInfo(
        name=config.env,
        architecture="jepa",
        config=asdict(config.model),
        action=action_to_json(action_of(results[0].meta)),
        description=DESCRIPTIONS[config.env],
        seed=config.seed,
        data_hash=results[0].data_hash,
        training={**_settings(config), "total_seconds": seconds, "cores": os.cpu_count()},
        evaluation={"held_out": [result.measured for result in results]},
    )
    save_weights(config.file, join_members([result.state for result in results]), info)
    for job in jobs:
        job.checkpoint.unlink(missing_ok=True)  # the run is over; the next one starts anew
    if evaluate is not None:
        add_evaluation(config.file, evaluate(config.file))
    return config.file


def join_members(states: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Returns the state of an ensemble: the members' tensors under `0.`, `1.`, ..."""
    return {f"{i}.{name}": tensor for i, state in enumerate(states) for name, tensor in state.items()}


def _jobs(config: TrainConfig, data: Path) -> list[MemberJob]:
    member = replace(config.model, members=1)
    return [
        MemberJob(
            number=i,
            seed=config.seed + i,
            data=data,
            folder=config.file.parent,
            model=member,
            loss=config.loss,
            trainer=config.trainer,
            refinement=config.refinement,
            head=config.head,
            pin=config.model.members > 1,
        )
        for i in range(config.model.members)
    ]


def _train_members(jobs: Sequence[MemberJob]) -> list[MemberResult]:
    """Trains as many members at once as there are cores."""
    columns = (TextColumn("member {task.fields[number]}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    with (
        CONTEXT.Manager() as manager,
        ProgressDisplay(*columns, TimeElapsedColumn(), TextColumn("{task.fields[news]}")) as display,
    ):
        news: queue.Queue[Progress] = manager.Queue()
        bars = [display.add_task("train", total=1.0, number=job.number, news="reading data") for job in jobs]

        def show() -> None:
            while not news.empty():
                each = news.get()
                display.update(bars[each.member], completed=each.share, news=each.text)

        return run_jobs(partial(train_member, outbox=news), jobs, workers=os.cpu_count() or 1, tick=show)


def _settings(config: TrainConfig) -> dict[str, Any]:
    """Returns the configuration as JSON can hold it, without the paths of this machine."""
    values = asdict(config)
    del values["out"], values["data"], values["model"]
    return values


def _write_curves(config: TrainConfig, results: Sequence[MemberResult]) -> None:
    folder = config.file.parent
    folder.mkdir(parents=True, exist_ok=True)
    for i, result in enumerate(results):
        draw_curves(result.rows, folder / f"member-{i}-curves.png", f"{config.env}, member {i}")
        report = {"rows": result.rows, "measured": result.measured}
        (folder / f"member-{i}-curves.json").write_text(json.dumps(report, indent=1) + "\n")
