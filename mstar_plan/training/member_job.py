"""What trains one member of an ensemble on a core of its own: pixels, predictor, head, measurements."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from mstar_plan.models.jepa import JepaConfig, JepaMember
from mstar_plan.training.dataset import split
from mstar_plan.training.diagnostics import (
    distance_rank_correlation,
    effective_rank,
    encode_frames,
    probe_r2,
    rollout_error,
)
from mstar_plan.training.latents import encode_episodes
from mstar_plan.training.losses import LossConfig
from mstar_plan.training.metric_head import HeadConfig, train_head
from mstar_plan.training.refinement import RefinementConfig, refine
from mstar_plan.training.shards import Episodes, data_hash, read_episodes
from mstar_plan.training.trainer import MemberTrainer, Row, TrainerConfig


@dataclass(frozen=True)
class Progress:
    """News of one member.

    Attributes:
        member: Its number.
        share: Share of the member's time that is over, 0 to 1.
        text: What to show beside it.
    """

    member: int
    share: float
    text: str


class Outbox(Protocol):
    """Where news go: a queue to the parent process, or a list."""

    def put(self, item: Progress, /) -> None:
        """Hands one over."""
        ...


@dataclass(frozen=True)
class MemberJob:
    """Everything that a member's training is a function of (the clock aside).

    Attributes:
        number: Which member; it says the core too.
        seed: Of its weights and batches.
        data: Folder of shards.
        folder: Where its checkpoint goes.
        pin: Stay on one core: two members that share cores slow one another down.
    """

    number: int
    seed: int
    data: Path
    folder: Path
    model: JepaConfig
    loss: LossConfig
    trainer: TrainerConfig
    refinement: RefinementConfig
    head: HeadConfig
    pin: bool = True

    @property
    def checkpoint(self) -> Path:
        """File of the first stage's progress."""
        return self.folder / f"member-{self.number}.ckpt"


@dataclass(frozen=True, eq=False)
class MemberResult:
    """What comes back.

    Attributes:
        state: The member's tensors, on the CPU.
        rows: One row a check of the first stage.
        measured: Held-out diagnostics at the end.
        data_hash: Of the episodes.
        action: Metadata of the episodes.
    """

    state: Mapping[str, Tensor]
    rows: list[Row]
    measured: dict[str, Any]
    data_hash: str
    meta: dict[str, Any]


def train_member(job: MemberJob, outbox: Outbox) -> MemberResult:
    """Runs all stages of one member.

    Raises:
        InvalidInputError: The data or the checkpoint cannot be used.
    """
    _settle(job)
    episodes = read_episodes(job.data)
    say = _Teller(job, outbox)
    trainer = MemberTrainer(episodes, job.model, job.loss, job.trainer, seed=job.seed, checkpoint=job.checkpoint)
    trained = trainer.run(say.stage(job.trainer.seconds, lambda row: f"pixels, held-out error {row['error_mean']:.4f}"))
    member = trained.member
    training, held = split(episodes, job.trainer.held_out)
    latents = encode_episodes(member, training)
    iterations = {"pixels": int(trained.rows[-1]["iteration"])}
    if job.refinement.seconds:
        tell = say.stage(job.refinement.seconds, lambda loss: f"predictor, loss {loss:.4f}")
        iterations["refinement"] = refine(member, latents, job.refinement, seed=job.seed, report=tell)
    if member.head is not None:
        tell = say.stage(job.head.seconds, lambda loss: f"distance head, loss {loss:.4f}")
        iterations["head"] = train_head(member, latents, job.head, seed=job.seed, report=tell)
    member.eval()
    measured = {"iterations": iterations, **measure(member, held, job.trainer.horizon)}
    state = {name: value.detach().cpu() for name, value in member.state_dict().items()}
    return MemberResult(state, trained.rows, measured, data_hash(episodes), episodes.meta)


def measure(member: JepaMember, held: Episodes, horizon: int) -> dict[str, Any]:
    """Returns the diagnostics of a finished member on held-out episodes; positions are only measured on here."""
    z_EFD = encode_frames(member, held.frames)
    flat, positions = z_EFD.flatten(0, 1), held.positions.reshape(-1, held.positions.shape[-1])
    actions = torch.from_numpy(held.actions).to(z_EFD.device)
    result: dict[str, Any] = {
        "rollout_error": [round(e, 5) for e in rollout_error(member, z_EFD, actions, min(horizon, held.steps))],
        "effective_rank": round(effective_rank(flat), 2),
        "probe_r2": [round(r, 4) for r in probe_r2(flat.cpu().numpy(), positions)],
        "latent_rank_correlation": round(distance_rank_correlation(lambda z: z, flat, positions), 3),
    }
    if member.head is not None:
        result["head_rank_correlation"] = round(distance_rank_correlation(member.head, flat, positions), 3)
    return result


class _Teller:
    """Turns the progress of a stage into that of the whole member."""

    def __init__(self, job: MemberJob, outbox: Outbox) -> None:
        head = job.head.seconds if job.model.head else 0.0
        self._total = job.trainer.seconds + job.refinement.seconds + head
        self._number, self._outbox, self._before = job.number, outbox, 0.0

    def stage(self, seconds: float, text: Callable[[Any], str]) -> Callable[[float, Any], None]:
        """Returns the reporter of the next stage."""
        before, self._before = self._before, self._before + seconds

        def tell(share: float, news: Any) -> None:
            self._outbox.put(Progress(self._number, (before + share * seconds) / self._total, text(news)))

        return tell


def _settle(job: MemberJob) -> None:
    """One thread on one core: two such members side by side do more than one with two threads."""
    torch.set_num_threads(1)
    if job.pin and hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[job.number % len(cores)]})
