"""From nothing to a small V-JEPA 2-AC: collect, distil the encoder, train the predictor, measure, save."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mstar_plan.errors import ConfigError, did_you_mean
from mstar_plan.models.registry import load_model, load_model_file
from mstar_plan.models.vjepa2.ac_predictor import ACPredictor
from mstar_plan.models.vjepa2.config import AC_PREDICTORS, ENCODERS, ACPredictorConfig, EncoderConfig
from mstar_plan.models.vjepa2.contract import ModelContract
from mstar_plan.models.vjepa2.convert import add_self_test
from mstar_plan.models.vjepa2.encoder import VJEPA2Encoder
from mstar_plan.models.vjepa2.world_model import VJEPA2AC, VJEPA2ACConfig
from mstar_plan.models.weights import WeightsInfo, action_to_json, add_evaluation, save_weights
from mstar_plan.training.collection import ENVIRONMENTS, CollectConfig, collect
from mstar_plan.training.dataset import split
from mstar_plan.training.shards import Episodes, data_hash, read_episodes
from mstar_plan.training.vjepa2.distillation import DistillationConfig, distil, encode_all, still_tokens
from mstar_plan.training.vjepa2.measure import measure_encoder, rollout_errors
from mstar_plan.training.vjepa2.targets import TokenTargets
from mstar_plan.training.vjepa2.token_predictor import (
    PredictorTraining,
    TokenEpisodes,
    start_weights,
    train_predictor,
)

PREFIX = "vjepa2_"
DESCRIPTIONS: Mapping[str, str] = {
    "reach": "Reach with a small V-JEPA 2-AC: a token grid and rollouts with growing context.",
    "wall": "Wall with a small V-JEPA 2-AC: a token grid and rollouts with growing context.",
    "push": "Push with a small V-JEPA 2-AC: a token grid and rollouts with growing context.",
}
Say = Callable[[str], None]


@dataclass(frozen=True)
class VJEPA2TrainConfig:
    """How the weights of one task are made.

    Attributes:
        env: vjepa2_reach, vjepa2_wall or vjepa2_push; also the model's name.
        out: Weight file; runs/train/ENV-sSEED/ENV.safetensors by default.
        data: Folder of episodes; None collects them (or takes up a collection that was stopped).
        teacher: Weight file of the encoder to distil from; None takes the packaged `jepa` model of the task.
        episodes: Episodes to collect.
        steps: Actions an episode.
        seed: Of data, weights, projections and batches.
        held_out: Share of the episodes that is only measured on.
        encoder: Sizes of the encoder.
        predictor: Sizes of the predictor.
        distillation: The first stage.
        rollouts: The second stage.
        threads: Torch threads. At this size a second one helps little.
    """

    env: str = "vjepa2_reach"
    out: Path | None = None
    data: Path | None = None
    teacher: Path | None = None
    episodes: int = 1200
    steps: int = 40
    seed: int = 0
    held_out: float = 0.04
    encoder: EncoderConfig = field(default_factory=lambda: ENCODERS["tiny"])
    predictor: ACPredictorConfig = field(default_factory=lambda: AC_PREDICTORS["tiny"])
    distillation: DistillationConfig = field(default_factory=DistillationConfig)
    rollouts: PredictorTraining = field(default_factory=PredictorTraining)
    threads: int = 1

    def __post_init__(self) -> None:
        names = [f"{PREFIX}{name}" for name in ENVIRONMENTS]
        if self.env not in names:
            raise ConfigError(f"env is {self.env!r}{did_you_mean(self.env, names)}", field="env")
        if self.seed < 0 or self.threads < 1:
            raise ConfigError(f"seed is {self.seed}, threads {self.threads}; they need at least 0 and 1", field="seed")
        if self.out is not None and self.out.suffix != ".safetensors":
            raise ConfigError(f"out is {str(self.out)!r}; it needs a name that ends in .safetensors", field="out")
        if self.steps < self.rollouts.longest:
            raise ConfigError(f"steps is {self.steps}; rollouts in training are longer than that", field="steps")

    @property
    def task(self) -> str:
        """The environment's name, which is the teacher's too."""
        return self.env.removeprefix(PREFIX)

    @property
    def file(self) -> Path:
        """The weight file."""
        return self.out or Path("runs") / "train" / f"{self.env}-s{self.seed}" / f"{self.env}.safetensors"

    @property
    def collection(self) -> CollectConfig:
        """The episodes to collect where no folder is given: those that the teacher was trained on."""
        return CollectConfig(env=self.task, episodes=self.episodes, steps=self.steps, seed=self.seed)


@dataclass(frozen=True, eq=False)
class _Part:
    """Training or held-out episodes, and the teacher's latents [S, Z] of all their frames."""

    episodes: Episodes
    latents: Tensor

    @property
    def frames(self) -> Any:
        """[S, H_px, W_px, 3]."""
        return self.episodes.frames.reshape(-1, *self.episodes.frames.shape[2:])


def train(
    config: VJEPA2TrainConfig,
    evaluate: Callable[[Path], Mapping[str, Any]] | None = None,
    *,
    say: Say = print,
) -> Path:
    """Makes the weight file and returns its path.

    Args:
        config: How.
        evaluate: Measures a weight file in closed loop; what it returns joins the file's evaluation.
        say: Gets a line of news now and then.

    Raises:
        InvalidInputError: The data cannot be used.
        WeightsError: The teacher's file cannot be used, or the training ended in values that are not finite.
    """
    started = time.monotonic()
    torch.set_num_threads(config.threads)
    episodes = read_episodes(config.data or collect(config.collection))
    training, held = (_with_teacher(part, config) for part in split(episodes, config.held_out))
    model = make_model(config, episodes)
    targets = TokenTargets(
        training.latents, config.encoder.tokens_per_frame, config.encoder.embed_dim, seed=config.seed
    )
    distil(
        model,
        training.frames,
        training.latents,
        targets,
        config.distillation,
        seed=config.seed,
        report=lambda i, loss: say(f"encoder: {i} of {config.distillation.iterations}, loss {loss:.5f}"),
    )
    seen, seen_held = _see(model, training), _see(model, held)
    train_predictor(
        model.predictor,
        seen,
        config.rollouts,
        seed=config.seed,
        report=lambda i, terms: say(f"predictor: {i} of {config.rollouts.iterations}, {terms}"),
    )
    positions = held.episodes.positions.reshape(-1, held.episodes.positions.shape[-1])
    tokens = seen_held.tokens.flatten(0, 1).float()
    measured = {
        **measure_encoder(tokens, held.latents, positions, targets),
        **rollout_errors(model.predictor, seen_held, targets, config.rollouts.longest),
    }
    _save(config, model, episodes, measured, time.monotonic() - started)
    if evaluate is not None:
        add_evaluation(config.file, evaluate(config.file))
    return config.file


def make_model(config: VJEPA2TrainConfig, episodes: Episodes) -> VJEPA2AC:
    """The model before training."""
    torch.manual_seed(config.seed)
    contract = ModelContract(
        pixel_mean=(0.5, 0.5, 0.5),
        pixel_std=(0.5, 0.5, 0.5),
        frame_copies=config.encoder.tubelet_size,
        frame_dt_s=episodes.action.dt_s,
        state="none",
        action_frame="joints" if config.task == "reach" else "table",
        gripper_sign="",
    )
    whole = VJEPA2ACConfig(config.encoder, config.predictor, contract)
    encoder, predictor = VJEPA2Encoder(config.encoder), ACPredictor(config.predictor)
    start_weights(predictor)
    return VJEPA2AC(config.env, whole, episodes.action, encoder, predictor, description=DESCRIPTIONS[config.task])


def _with_teacher(episodes: Episodes, config: VJEPA2TrainConfig) -> _Part:
    teacher = load_model(config.task) if config.teacher is None else load_model_file(config.teacher)
    frames = episodes.frames.reshape(-1, *episodes.frames.shape[2:])
    return _Part(episodes, encode_all(lambda batch: teacher.encode(batch).flatten(1), frames))


def _see(model: VJEPA2AC, part: _Part) -> TokenEpisodes:
    """What the frozen encoder says of all frames."""
    tokens = encode_all(lambda batch: still_tokens(model, batch).half(), part.frames)
    episodes = part.episodes
    shape = (len(episodes), episodes.steps + 1, *tokens.shape[1:])
    return TokenEpisodes(tokens.view(shape), torch.from_numpy(episodes.actions))


def _save(
    config: VJEPA2TrainConfig, model: VJEPA2AC, episodes: Episodes, measured: Mapping[str, Any], seconds: float
) -> None:
    settings = asdict(config)
    for name in ("out", "data", "teacher", "encoder", "predictor"):
        del settings[name]
    info = WeightsInfo(
        name=config.env,
        architecture="vjepa2_ac",
        config=asdict(model.config),
        action=action_to_json(episodes.action),
        description=DESCRIPTIONS[config.task],
        seed=config.seed,
        data_hash=data_hash(episodes),
        training={**settings, "total_seconds": round(seconds, 1), "cores": os.cpu_count()},
        evaluation={"held_out": [measured]},
    )
    save_weights(config.file, model.state_dict(), info)
    add_self_test(config.file)  # of the weights as they are stored
