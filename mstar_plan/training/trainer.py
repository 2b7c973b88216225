"""Training of one member on pixels: clock-annealed AdamW, checks on held-out episodes, checkpoints, resume."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mstar_plan.errors import ConfigError, InvalidInputError
from mstar_plan.models.jepa import JepaConfig, JepaMember
from mstar_plan.models.layers.mlp import Mlp
from mstar_plan.training.dataset import WindowBatch, Windows, split
from mstar_plan.training.diagnostics import effective_rank, encode_frames, probe_r2, rollout_error
from mstar_plan.training.losses import LossConfig, total_loss
from mstar_plan.training.schedule import learning_rate_factor
from mstar_plan.training.shards import Episodes

Row = dict[str, float]
Report = Callable[[float, Row], None]


@dataclass(frozen=True)
class TrainerConfig:
    """How one member is trained.

    Attributes:
        seconds: Wall-clock time; the learning rate is annealed over it.
        batch: Windows an iteration.
        steps: K, steps that the predictor is fed its own predictions; a window has K + 1 frames.
        learning_rate: Peak of AdamW's.
        weight_decay: AdamW's.
        warmup: Iterations.
        clip: Largest gradient norm.
        held_out: Share of the episodes that is only measured on.
        checks: Times that the held-out episodes are measured.
        horizon: Steps of the held-out rollouts; the checkpoint with the least mean error over them is kept.
        bfloat16: Run the encoder in bfloat16 where the processor multiplies it in hardware.
        device: cpu or cuda.
    """

    seconds: float = 130.0
    batch: int = 64
    steps: int = 5
    learning_rate: float = 1e-3
    weight_decay: float = 1e-4
    warmup: int = 100
    clip: float = 1.0
    held_out: float = 0.04
    checks: int = 20
    horizon: int = 10
    bfloat16: bool = True
    device: str = "cpu"

    def __post_init__(self) -> None:
        for name in ("seconds", "batch", "steps", "learning_rate", "clip", "held_out", "checks", "horizon"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} is {getattr(self, name)}; it needs a positive number", field=name)
        if not self.held_out < 0.5:
            raise ConfigError(f"held_out is {self.held_out}; it needs a share under 0.5", field="held_out")


@dataclass(eq=False)
class TrainedMember:
    """What a run gives.

    Attributes:
        member: The checkpoint of the least held-out error, in evaluation mode.
        rows: One row a check: seconds, iteration, losses, diagnostics.
        best: The row of the checkpoint.
    """

    member: JepaMember
    rows: list[Row] = field(default_factory=list)
    best: Row = field(default_factory=dict)


class MemberTrainer:
    """Trains one member.

    Args:
        episodes: All episodes; some are held out.
        model: Sizes of the member.
        loss: Weights of the terms.
        config: How.
        seed: Of weights, windows and projections.
        checkpoint: File that progress is kept in, and taken up from if it is there; None keeps none.
    """

    def __init__(
        self,
        episodes: Episodes,
        model: JepaConfig,
        loss: LossConfig,
        config: TrainerConfig,
        *,
        seed: int = 0,
        checkpoint: Path | None = None,
    ) -> None:
        self._config, self._loss, self._checkpoint = config, loss, checkpoint
        self._identity = repr((model, loss, config, seed, len(episodes)))
        training, self._held = split(episodes, config.held_out)
        self._windows = Windows(training, config.steps + 1)
        self._device = torch.device(config.device)
        torch.manual_seed(seed)
        self._rng = np.random.default_rng([seed, 1])
        self._member = JepaMember(model).to(self._device)
        self._inverse = Mlp((2 * model.latent, 128, model.actions)).to(self._device)
        parameters = [*self._member.parameters(), *self._inverse.parameters()]
        self._optimiser = torch.optim.AdamW(parameters, config.learning_rate, weight_decay=config.weight_decay)
        self._bfloat16 = config.bfloat16 and _multiplies_bfloat16(self._device)
        self._iteration, self._spent = 0, 0.0
        self._rows: list[Row] = []
        self._best: Row = {}
        self._best_state: dict[str, Tensor] = {}
        if checkpoint is not None and checkpoint.is_file():
            self._resume(checkpoint)

    def run(self, report: Report | None = None) -> TrainedMember:
        """Trains until the time is spent; `report` gets the share of the time and the newest row after each check."""
        config = self._config
        start, due = time.monotonic() - self._spent, self._next_check()
        recent: list[dict[str, float]] = []
        while self._spent < config.seconds:
            recent.append(self._iterate(self._windows.sample(self._rng, config.batch).to(self._device)))
            self._spent = time.monotonic() - start
            if self._spent >= due:
                row = self._check(recent)
                recent = []
                if report is not None:
                    report(min(1.0, self._spent / config.seconds), row)
                self._save()
                start, due = time.monotonic() - self._spent, self._next_check()  # checks do not cost training time
        self._member.load_state_dict(self._best_state)
        return TrainedMember(self._member.eval(), self._rows, self._best)

    def _next_check(self) -> float:
        interval = self._config.seconds / self._config.checks
        return min(self._config.seconds, (int(self._spent / interval) + 1) * interval)

    def _iterate(self, batch: WindowBatch) -> dict[str, float]:
        config = self._config
        factor = learning_rate_factor(self._iteration, self._spent / config.seconds, warmup=config.warmup)
        for group in self._optimiser.param_groups:
            group["lr"] = config.learning_rate * factor
        self._member.train()
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._bfloat16):
            latents = self._member.encoder(batch.frames.flatten(0, 1))
        latents = latents.float().view(*batch.frames.shape[:2], -1)
        loss, terms = total_loss(self._member, self._inverse, latents, batch.actions, self._loss)
        self._optimiser.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        parameters = [*self._member.parameters(), *self._inverse.parameters()]
        nn.utils.clip_grad_norm_(parameters, config.clip)
        self._optimiser.step()
        self._iteration += 1
        return {"loss": float(loss.detach()), **terms}

    def _check(self, recent: list[dict[str, float]]) -> Row:
        self._member.eval()
        z_EFD = encode_frames(self._member, self._held.frames)
        actions = torch.from_numpy(self._held.actions).to(self._device)
        errors = rollout_error(self._member, z_EFD, actions, min(self._config.horizon, self._held.steps))
        flat = z_EFD.flatten(0, 1)
        readable = probe_r2(flat.cpu().numpy(), self._held.positions.reshape(len(flat), -1))
        row = {
            "seconds": self._spent,
            "iteration": float(self._iteration),
            **{name: float(np.mean([terms[name] for terms in recent])) for name in recent[0]},
            "error_mean": float(np.mean(errors)),
            **{f"error_{k + 1}": errors[k] for k in (0, len(errors) // 2, len(errors) - 1)},
            "effective_rank": effective_rank(flat),
            "probe_r2": min(readable),
        }
        self._rows.append(row)
        if not self._best or row["error_mean"] < self._best["error_mean"]:
            self._best = row
            self._best_state = {name: value.clone() for name, value in self._member.state_dict().items()}
        return row

    def _save(self) -> None:
        if self._checkpoint is None:
            return
        state = {
            "identity": self._identity,
            "member": self._member.state_dict(),
            "inverse": self._inverse.state_dict(),
            "optimiser": self._optimiser.state_dict(),
            "best_state": self._best_state,
            "progress": {"iteration": self._iteration, "spent": self._spent, "rows": self._rows, "best": self._best},
            "rng": self._rng.bit_generator.state,
            "torch_rng": torch.get_rng_state(),
        }
        self._checkpoint.parent.mkdir(parents=True, exist_ok=True)
        partial = self._checkpoint.with_suffix(".partial")
        torch.save(state, partial)
        partial.replace(self._checkpoint)

    def _resume(self, path: Path) -> None:
        try:
            state: dict[str, Any] = torch.load(path, map_location=self._device, weights_only=True)
            if state["identity"] != self._identity:
                raise ValueError(f"it was made with {state['identity']}")
            self._member.load_state_dict(state["member"])
            self._inverse.load_state_dict(state["inverse"])
            self._optimiser.load_state_dict(state["optimiser"])
            progress = state["progress"]
            self._rng.bit_generator.state = state["rng"]
            torch.set_rng_state(state["torch_rng"].cpu())
        except Exception as error:  # torch raises many kinds for a damaged or foreign file
            raise InvalidInputError(f"{path} is no checkpoint of this run ({error}); delete it first") from error
        self._best_state = state["best_state"]
        self._iteration, self._spent = progress["iteration"], progress["spent"]
        self._rows, self._best = progress["rows"], progress["best"]


def _multiplies_bfloat16(device: torch.device) -> bool:
    """Whether the device multiplies bfloat16 in hardware; in software it is slower than float32."""
    if device.type != "cpu":
        return True
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported()) and "avx512_bf16" in _cpu_flags()


def _cpu_flags() -> str:
    path = Path("/proc/cpuinfo")
    return path.read_text() if path.is_file() else ""
