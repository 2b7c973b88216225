"""From nothing to a flow policy: the planner demonstrates, the policy learns to do the same, is measured and saved."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mstar_plan.errors import ConfigError, did_you_mean
from mstar_plan.models.flow_policy.network import FlowNet, FlowPolicyConfig
from mstar_plan.models.flow_policy.policy import ARCHITECTURE, FlowPolicy, digest
from mstar_plan.models.registry import load_model
from mstar_plan.models.weights import WeightsInfo, action_to_json, add_evaluation, save_weights
from mstar_plan.models.world_model import WorldModel
from mstar_plan.training.collection import ENVIRONMENTS
from mstar_plan.training.flow_policy.cloning import CloningConfig, clone, encode_windows, measure
from mstar_plan.training.flow_policy.demonstrate import DemonstrationConfig, demonstrate
from mstar_plan.training.flow_policy.demonstrations import Demonstrations, read_demonstrations

PREFIX = "flow_"
DESCRIPTIONS: Mapping[str, str] = {
    "reach": "Reach by a flow policy: chunks of arm speeds, from a picture of now and one of the goal.",
    "wall": "Wall by a flow policy: chunks of velocities, from a picture of now and one of the goal.",
    "push": "Push by a flow policy: chunks of velocities, from a picture of now and one of the goal.",
}
Say = Callable[[str], None]


@dataclass(frozen=True)
class FlowTrainConfig:
    """How the weights of one flow policy are made.

    Attributes:
        env: flow_reach, flow_wall or flow_push; also the policy's name.
        out: Weight file; runs/train/ENV-sSEED/ENV.safetensors by default.
        data: Folder of demonstrations; None collects them (or takes up a collection that was stopped).
        seed: Of demonstrations, weights, batches and noise.
        held_out: Share of the demonstrations that is only measured on.
        chunk: Actions of one proposal.
        width: Of the net.
        blocks: Of the net.
        steps: Euler steps where a request does not say.
        demonstrations: What the expert shows.
        cloning: How the policy learns it.
        threads: Torch threads.
    """

    env: str = "flow_reach"
    out: Path | None = None
    data: Path | None = None
    seed: int = 0
    held_out: float = 0.04
    chunk: int = 12
    width: int = 256
    blocks: int = 3
    steps: int = 10
    demonstrations: DemonstrationConfig = field(default_factory=DemonstrationConfig)
    cloning: CloningConfig = field(default_factory=CloningConfig)
    threads: int = 1

    def __post_init__(self) -> None:
        names = [f"{PREFIX}{name}" for name in ENVIRONMENTS]
        if self.env not in names:
            raise ConfigError(f"env is {self.env!r}{did_you_mean(self.env, names)}", field="env")
        if self.seed < 0 or self.threads < 1:
            raise ConfigError(f"seed is {self.seed}, threads {self.threads}; they need at least 0 and 1", field="seed")
        if not 0 < self.held_out < 1:
            raise ConfigError(f"held_out is {self.held_out}; it needs more than 0 and less than 1", field="held_out")
        if self.out is not None and self.out.suffix != ".safetensors":
            raise ConfigError(f"out is {str(self.out)!r}; it needs a name that ends in .safetensors", field="out")

    @property
    def task(self) -> str:
        """Name of the environment and of the world model whose encoder the policy sees with."""
        return self.env.removeprefix(PREFIX)

    @property
    def file(self) -> Path:
        """The weight file."""
        return self.out or Path("runs") / "train" / f"{self.env}-s{self.seed}" / f"{self.env}.safetensors"

    @property
    def folder(self) -> Path:
        """Where demonstrations are, or go to."""
        count = self.demonstrations.episodes
        return self.data or Path("data") / f"{self.env}-s{self.seed}-{count}x{self.demonstrations.steps}"


def train(
    config: FlowTrainConfig,
    evaluate: Callable[[Path], Mapping[str, Any]] | None = None,
    *,
    say: Say = print,
    encoder: WorldModel | None = None,
) -> Path:
    """Makes the weight file and returns its path.

    Args:
        config: How.
        evaluate: Measures a weight file in closed loop; what it returns joins the file's evaluation.
        say: Gets a line of news now and then.
        encoder: What the policy sees with; None takes the packaged model of the task.

    Raises:
        InvalidInputError: The demonstrations cannot be used.
        UnavailableError: The packaged world model is not there, or a process was killed.
        WeightsError: The training ended in values that are not finite.
    """
    started = time.monotonic()
    folder = config.data or demonstrate(config.task, config.folder, config.demonstrations, config.seed)
    torch.set_num_threads(config.threads)
    episodes = read_demonstrations(folder)
    policy = make_policy(config, episodes, encoder or load_model(config.task))
    training, held = split(episodes, config.held_out)
    windows = encode_windows(policy, training)
    say(f"{len(windows)} chunks of {len(training)} episodes")
    clone(
        policy,
        windows,
        config.cloning,
        seed=config.seed,
        report=lambda i, loss: say(f"flow: {i} of {config.cloning.iterations}, loss {loss:.4f}"),
    )
    measured = dict(measure(policy, encode_windows(policy, held)))
    _save(config, policy, episodes, measured, time.monotonic() - started)
    if evaluate is not None:
        add_evaluation(config.file, evaluate(config.file))
    return config.file


def make_policy(config: FlowTrainConfig, episodes: Demonstrations, encoder: WorldModel) -> FlowPolicy:
    """The policy before training."""
    sizes = FlowPolicyConfig(
        encoder=encoder.spec.name,
        encoder_digest=digest(encoder),
        image_size=encoder.spec.image_size[0],
        latent=int(np.prod(encoder.spec.latent_shape)),
        chunk=config.chunk,
        actions=episodes.action.size,
        width=config.width,
        blocks=config.blocks,
        steps=config.steps,
    )
    torch.manual_seed(config.seed)
    return FlowPolicy(config.env, FlowNet(sizes), encoder, episodes.action, description=DESCRIPTIONS[config.task])


def split(episodes: Demonstrations, held_out: float) -> tuple[Demonstrations, Demonstrations]:
    """Cuts the first `held_out` share of the episodes off, one at least: (training, held out)."""
    count = min(max(1, round(len(episodes) * held_out)), len(episodes) - 1)
    return episodes.part(slice(count, None)), episodes.part(slice(0, count))


def _save(
    config: FlowTrainConfig, policy: FlowPolicy, episodes: Demonstrations, measured: Mapping[str, Any], seconds: float
) -> None:
    settings = asdict(config)
    for name in ("out", "data", "chunk", "width", "blocks", "steps"):
        del settings[name]
    info = WeightsInfo(
        name=config.env,
        architecture=ARCHITECTURE,
        config=asdict(policy.config),
        action=action_to_json(episodes.action),
        description=DESCRIPTIONS[config.task],
        seed=config.seed,
        data_hash=episodes.digest(),
        training={**settings, "total_seconds": round(seconds, 1), "cores": os.cpu_count()},
        evaluation={"held_out": [measured]},
    )
    save_weights(config.file, policy.net.state_dict(), info)
