"""Behaviour cloning by flow matching: a flow net learns the expert's chunks, given latents of now and of the goal.

The straight path x_t = t noise + (1 - t) actions has the velocity noise - actions, which the net is to give (Lipman et
al. 2023, arXiv 2210.02747; times are drawn as pi0 draws them, arXiv 2410.24164).

Shapes: E episodes, T steps, F = T+1 frames, L latent, R rows, K proposals, S actions of a chunk, A action.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mstar_plan.errors import ConfigError, InvalidInputError
from mstar_plan.models.flow_policy.network import FlowNet
from mstar_plan.models.flow_policy.policy import FlowPolicy
from mstar_plan.training.flow_policy.demonstrations import Demonstrations
from mstar_plan.training.schedule import learning_rate_factor

ENCODED_AT_ONCE = 512
MEASURED_PROPOSALS = 16


@dataclass(frozen=True)
class CloningConfig:
    """How the net is trained.

    Attributes:
        iterations: Of the optimiser.
        batch: R, windows an iteration.
        learning_rate: Peak.
        weight_decay: Of AdamW.
        warmup: Iterations until the peak.
        clip: Largest gradient norm.
        average: Memory of the running mean of the weights, which is what is kept.
        late: Times are of a Beta(late, 1): above 1 they are more often near noise.
        latent_noise: Noise on the latents that are seen, as a fraction of their spread.
        report_every: Iterations between two lines of news.
    """

    iterations: int = 20000
    batch: int = 256
    learning_rate: float = 1e-3
    weight_decay: float = 1e-4
    warmup: int = 200
    clip: float = 1.0
    average: float = 0.999
    late: float = 1.5
    latent_noise: float = 0.0
    report_every: int = 1000

    def __post_init__(self) -> None:
        for name in ("iterations", "batch", "warmup", "report_every"):
            if getattr(self, name) < 1:
                raise ConfigError(f"cloning.{name} is {getattr(self, name)}; it needs at least 1", field=name)
        for name in ("learning_rate", "clip", "late"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"cloning.{name} is {getattr(self, name)}; it needs more than 0", field=name)
        if not 0 <= self.average < 1 or self.weight_decay < 0 or self.latent_noise < 0:
            raise ConfigError("cloning needs 0 <= average < 1, and weight_decay and latent_noise of at least 0")


@dataclass(frozen=True, eq=False)
class Windows:
    """Chunks of demonstrations as latents.

    Attributes:
        latents: [E, F, L].
        goals: [E, L].
        chunks: [E, T, S, A] in [-1, 1] units; what lies behind an episode's end is zero.
        known: [E, T, S] whether an action lies before its end.
    """

    latents: Tensor
    goals: Tensor
    chunks: Tensor
    known: Tensor

    def __len__(self) -> int:
        """How many there are."""
        return self.chunks.shape[0] * self.chunks.shape[1]

    def at(self, index_R: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Latents of now [R, L] and goal [R, L], chunks [R, S, A], and which actions are known [R, S]."""
        episode, step = index_R // self.chunks.shape[1], index_R % self.chunks.shape[1]
        return self.latents[episode, step], self.goals[episode], self.chunks[episode, step], self.known[episode, step]


def encode_windows(policy: FlowPolicy, episodes: Demonstrations) -> Windows:
    """Encodes all pictures once, and cuts the actions into chunks.

    Raises:
        InvalidInputError: The episodes have pictures or actions of another size than the policy.
    """
    config, space = policy.config, policy.action
    size = (config.image_size, config.image_size)
    if episodes.frames.shape[2:4] != size or episodes.actions.shape[2] != config.actions:
        what = f"demonstrations of {episodes.frames.shape[2:4]} pixels and {episodes.actions.shape[2]} actions"
        raise InvalidInputError(f"{what}; policy {policy.name!r} needs {size} and {config.actions}", field="data")
    low, high = torch.from_numpy(space.low), torch.from_numpy(space.high)
    actions = (torch.from_numpy(episodes.actions) - (low + high) / 2) / ((high - low) / 2)
    count, steps = actions.shape[:2]
    padded = torch.cat([actions, torch.zeros(count, config.chunk, config.actions)], 1)
    reach = torch.arange(steps)[:, None] + torch.arange(config.chunk)  # [T, S]
    frames = torch.from_numpy(episodes.frames).flatten(0, 1)
    return Windows(
        _encode(policy, frames).view(count, steps + 1, -1),
        _encode(policy, torch.from_numpy(episodes.goals)),
        padded[:, reach],
        (reach < steps).expand(count, -1, -1),
    )


def clone(
    policy: FlowPolicy,
    windows: Windows,
    config: CloningConfig,
    *,
    seed: int = 0,
    report: Callable[[int, float], None] | None = None,
) -> None:
    """Trains the policy's net in place; a function of the seed and the data.

    Args:
        policy: What to train; its encoder stays as it is.
        windows: What to learn from.
        config: How.
        seed: Of batches, noise and times.
        report: Gets the iteration and the mean loss since the last time.
    """
    generator = torch.Generator().manual_seed(seed)
    net, mean = policy.net.train(), deepcopy(policy.net)
    _fit_scale(net, windows)
    optimiser = torch.optim.AdamW(net.parameters(), config.learning_rate, weight_decay=config.weight_decay)
    losses: list[float] = []
    for i, index in enumerate(_batches(len(windows), config, generator)):
        factor = learning_rate_factor(i, i / config.iterations, warmup=config.warmup)
        for group in optimiser.param_groups:
            group["lr"] = config.learning_rate * factor
        loss = flow_loss(net, *windows.at(index), config=config, generator=generator)
        optimiser.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(net.parameters(), config.clip)
        optimiser.step()
        _average(mean, net, min(config.average, (i + 1) / (i + 10)))
        losses.append(float(loss.detach()))
        if report is not None and (i + 1) % config.report_every == 0:
            report(i + 1, sum(losses) / len(losses))
            losses.clear()
    net.load_state_dict(mean.state_dict())
    net.eval()


def flow_loss(
    net: FlowNet,
    now_RL: Tensor,
    goal_RL: Tensor,
    chunk_RSA: Tensor,
    known_RS: Tensor,
    *,
    config: CloningConfig,
    generator: torch.Generator,
) -> Tensor:
    """Mean squared error of the velocity over the known actions."""
    rows = len(chunk_RSA)
    time_R = 0.001 + 0.999 * torch.rand(rows, generator=generator) ** (1.0 / config.late)
    noise_RSA = torch.randn(chunk_RSA.shape, generator=generator)
    t_R11 = time_R[:, None, None]
    x_RSA = t_R11 * noise_RSA + (1 - t_R11) * chunk_RSA
    if config.latent_noise:
        std = config.latent_noise * net.get_buffer("latent_std")
        now_RL = now_RL + std * torch.randn(now_RL.shape, generator=generator)
        goal_RL = goal_RL + std * torch.randn(goal_RL.shape, generator=generator)
    v_RSA = net.velocity(x_RSA[:, None], time_R, net.see(now_RL, goal_RL))[:, 0]
    error_RS = (v_RSA - (noise_RSA - chunk_RSA)).square().mean(2)
    return (error_RS * known_RS).sum() / known_RS.sum()


@torch.inference_mode()
def measure(policy: FlowPolicy, windows: Windows, *, seed: int = 0) -> Mapping[str, float]:
    """What the policy does on episodes that it has not learned from.

    Returns:
        In [-1, 1] units: root mean squared error of one proposal over the known actions ("chunk_error") and of its
        first action ("first_action_error"); the same of the nearest of 16 proposals ("nearest_chunk_error"); and the
        standard deviation between proposals ("spread").
    """
    generator = torch.Generator().manual_seed(seed)
    count = min(len(windows), 2048)
    index = torch.randperm(len(windows), generator=generator)[:count]
    now, goal, chunk_RSA, known_RS = windows.at(index)
    shape = (count, MEASURED_PROPOSALS, *chunk_RSA.shape[1:])
    noise = torch.randn(shape, generator=generator)
    made_RKSA = policy.propose(now, goal, noise, policy.config.steps).clamp(-1, 1)
    squared_RKS = (made_RKSA - chunk_RSA[:, None]).square().mean(3)
    each_RK = (squared_RKS * known_RS[:, None]).sum(2) / known_RS.sum(1)[:, None]
    return {
        "chunk_error": each_RK[:, 0].mean().sqrt().item(),
        "first_action_error": squared_RKS[:, 0, 0].mean().sqrt().item(),
        "nearest_chunk_error": each_RK.amin(1).mean().sqrt().item(),
        "spread": made_RKSA.var(1).mean().sqrt().item(),
    }


@torch.no_grad()  # not inference mode: its tensors cannot be trained on
def _encode(policy: FlowPolicy, frames: Tensor) -> Tensor:
    parts = [policy.encode(part.contiguous()) for part in torch.split(frames, ENCODED_AT_ONCE)]
    return torch.cat(parts).float()


def _fit_scale(net: FlowNet, windows: Windows) -> None:
    flat = windows.latents.flatten(0, 1)
    net.get_buffer("latent_mean").copy_(flat.mean(0))
    net.get_buffer("latent_std").copy_(flat.std(0).clamp_min(1e-6))


def _batches(count: int, config: CloningConfig, generator: torch.Generator) -> Iterator[Tensor]:
    for _ in range(config.iterations):
        yield torch.randint(count, (config.batch,), generator=generator)


@torch.no_grad()
def _average(mean: FlowNet, net: FlowNet, memory: float) -> None:
    for kept, new in zip(mean.state_dict().values(), net.state_dict().values(), strict=True):
        kept.lerp_(new, 1 - memory)
