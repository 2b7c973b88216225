"""Second stage: the action-conditioned predictor on frozen tokens, by teacher forcing and by rollouts of its own.

Rollouts are trained as they are planned with: one true frame, then predictions alone, each normed, and all of them stay
in the context. The gradient flows through the whole rollout.

Shapes: E episodes, F = T+1 frames, B windows, H steps, N tokens, D width, A action.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from mstar_plan.errors import ConfigError, InvalidInputError
from mstar_plan.models.vjepa2.ac_predictor import ACPredictor
from mstar_plan.models.vjepa2.blocks import KeyValue
from mstar_plan.training.schedule import learning_rate_factor

BRANCH_START = 0.2  # of a block's branches, beside the stream that carries the last frame


@dataclass(frozen=True)
class PhaseConfig:
    """A part of the curriculum.

    Attributes:
        iterations: Batches.
        steps: H, steps of own-fed prediction.
        batch: Windows an iteration.
        teacher_forcing: Weight of the loss on true frames over the same window; 0 leaves it out.
    """

    iterations: int
    steps: int
    batch: int = 64
    teacher_forcing: float = 0.0

    def __post_init__(self) -> None:
        for name in ("iterations", "steps", "batch"):
            if not getattr(self, name) >= 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; it needs at least 1", field=name)
        if not self.teacher_forcing >= 0:
            raise ConfigError(
                f"teacher_forcing is {self.teacher_forcing}; it needs at least 0", field="teacher_forcing"
            )

    @property
    def work(self) -> int:
        """Frames that an iteration predicts."""
        return self.batch * self.steps * (2 if self.teacher_forcing else 1)


@dataclass(frozen=True)
class PredictorTraining:
    """How the predictor is trained.

    Attributes:
        phases: The curriculum; the learning rate is annealed over all of it, by work, not by the clock.
        learning_rate: Peak of AdamW's.
        weight_decay: AdamW's.
        warmup: Iterations.
        clip: Largest gradient norm.
    """

    phases: tuple[PhaseConfig, ...] = (
        PhaseConfig(3000, 2, teacher_forcing=1.0),
        PhaseConfig(2000, 6),
        PhaseConfig(4000, 12),
    )
    learning_rate: float = 2e-3
    weight_decay: float = 1e-4
    warmup: int = 100
    clip: float = 1.0

    def __post_init__(self) -> None:
        if not self.phases:
            raise ConfigError("rollouts.phases is empty; give at least one", field="phases")
        for name in ("learning_rate", "clip"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} is {getattr(self, name)}; it needs a positive number", field=name)

    @property
    def longest(self) -> int:
        """Steps of the longest rollouts."""
        return max(phase.steps for phase in self.phases)

    @property
    def iterations(self) -> int:
        """Batches in all."""
        return sum(phase.iterations for phase in self.phases)


@dataclass(frozen=True, eq=False)
class TokenEpisodes:
    """Episodes as the frozen encoder sees them.

    Attributes:
        tokens: [E, F, N, D] float16.
        actions: [E, T, A] float32.
    """

    tokens: Tensor
    actions: Tensor

    def windows(self, generator: torch.Generator, count: int, steps: int) -> tuple[Tensor, Tensor]:
        """Draws tokens [B, H+1, N, D] and actions [B, H, A].

        Raises:
            InvalidInputError: The episodes are shorter than that.
        """
        length = self.actions.shape[1]
        if length < steps:
            raise InvalidInputError(f"rollouts of {steps} steps do not fit episodes of {length}", field="steps")
        episode = torch.randint(len(self.tokens), (count, 1), generator=generator)
        start = torch.randint(length + 1 - steps, (count, 1), generator=generator)
        frames = start + torch.arange(steps + 1)
        return self.tokens[episode, frames].float(), self.actions[episode, frames[:, :-1]]


def start_weights(predictor: ACPredictor) -> None:
    """Weights to start from: every next frame is nearly the one before, and actions are heard from the first batch on.

    The published start (a deviation of 0.02 everywhere) suits widths near 1000; at 64 an action is all but silent.
    """
    with torch.no_grad():
        for block in predictor.predictor_blocks:
            for layer in block.modules():
                if isinstance(layer, nn.Linear):
                    nn.init.trunc_normal_(layer.weight, std=layer.in_features**-0.5)
            for end in (block.attn.proj, block.mlp.fc2):  # type: ignore[union-attr]
                end.weight.mul_(BRANCH_START)  # type: ignore[union-attr, operator]
        nn.init.normal_(predictor.action_encoder.weight)
        nn.init.normal_(predictor.action_encoder.bias)  # or the block's layer norm would hide how large an action is
        nn.init.orthogonal_(predictor.predictor_embed.weight)
        predictor.predictor_proj.weight.copy_(predictor.predictor_embed.weight.T)


def roll(predictor: ACPredictor, tokens: Tensor, actions: Tensor) -> Tensor:
    """Predictions [B, H, N, D] from the frame [B, N, D] and actions [B, H, A]; state tokens are zero."""
    past: Sequence[KeyValue] = ()
    state, predicted = torch.zeros_like(actions[:, 0]), []
    for h in range(actions.shape[1]):
        tokens, past = predictor.step(tokens, actions[:, h], state, past)
        tokens = functional.layer_norm(tokens, tokens.shape[-1:])
        predicted.append(tokens)
    return torch.stack(predicted, 1)


def follow(predictor: ACPredictor, tokens: Tensor, actions: Tensor) -> Tensor:
    """Predictions [B, H, N, D] of the frames after true frames [B, H, N, D]: teacher forcing."""
    out = predictor(tokens.flatten(1, 2), actions, torch.zeros_like(actions)).view(tokens.shape)
    return functional.layer_norm(out, out.shape[-1:])


def train_predictor(
    predictor: ACPredictor,
    data: TokenEpisodes,
    config: PredictorTraining,
    *,
    seed: int = 0,
    report: Callable[[int, dict[str, float]], None] | None = None,
) -> None:
    """Trains the predictor in place.

    Args:
        predictor: What to train.
        data: The episodes.
        config: How.
        seed: Of the windows.
        report: Gets the iterations done and the terms of the loss, about a hundred times.

    Raises:
        InvalidInputError: The episodes are shorter than a rollout.
    """
    generator = torch.Generator().manual_seed(seed)
    parameters = [value for name, value in predictor.named_parameters() if "extrinsics" not in name]
    optimiser = torch.optim.AdamW(parameters, config.learning_rate, betas=(0.9, 0.99), weight_decay=config.weight_decay)
    total, done = sum(phase.iterations * phase.work for phase in config.phases), 0
    every = max(1, config.iterations // 100)
    order = [phase for phase in config.phases for _ in range(phase.iterations)]
    for iteration, phase in enumerate(order):
        factor = learning_rate_factor(iteration, done / total, warmup=config.warmup)
        for group in optimiser.param_groups:
            group["lr"] = config.learning_rate * factor
        loss, terms = _loss(predictor, *data.windows(generator, phase.batch, phase.steps), phase)
        optimiser.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(parameters, config.clip)
        optimiser.step()
        done += phase.work
        if report is not None and (iteration + 1) % every == 0:
            report(iteration + 1, terms)


def _loss(
    predictor: ACPredictor, tokens: Tensor, actions: Tensor, phase: PhaseConfig
) -> tuple[Tensor, dict[str, float]]:
    """L1, as V-JEPA 2-AC is trained."""
    loss = functional.l1_loss(roll(predictor, tokens[:, 0], actions), tokens[:, 1:])
    terms = {"rollout": float(loss.detach())}
    if phase.teacher_forcing:
        forced = functional.l1_loss(follow(predictor, tokens[:, :-1], actions), tokens[:, 1:])
        terms["teacher_forcing"] = float(forced.detach())
        loss = loss + phase.teacher_forcing * forced
    return loss, terms
